// Kimi-K2 (moonshotai, whose own code loads it): DeepSeek-V3 under another name.
#include "convert/families/list.h"

namespace ferry {

Family kimi_k2_family() {
  Family family = deepseek_v3_family();
  family.name = "kimi_k2";
  family.defaults = R"({"q_lora_rank": 1536, "first_k_dense_replace": 1, "n_shared_experts": 1,
                        "n_group": 1, "topk_group": 1, "routed_scaling_factor": 2.827,
                        "num_experts_per_tok": 8, "moe_layer_freq": 1, "rope_interleave": true,
                        "norm_topk_prob": true})";
  family.torchtitan = TitanPairs::no_model;
  return family;
}

}  // namespace ferry
