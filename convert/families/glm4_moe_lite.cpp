// GLM-4.7-Flash (transformers/models/glm4_moe_lite): DeepSeek-V3 of other sizes, whose config.json
// may name the kind of each layer.
#include "convert/families/list.h"
#include "convert/families/shared.h"

namespace ferry {

Family glm4_moe_lite_family() {
  Family family = deepseek_v3_family();
  family.name = "glm4_moe_lite";
  family.class_name = "Glm4MoeLiteForCausalLM";
  family.config = shared::join({{codec::mixture_kinds(1)}, family.config});
  family.defaults = R"({"q_lora_rank": 768, "n_shared_experts": 1, "n_group": 1, "topk_group": 1,
                        "routed_scaling_factor": 1.8, "num_experts_per_tok": 4,
                        "rms_norm_eps": 1e-5, "rope_interleave": true, "norm_topk_prob": true})";
  family.expected_mtp_layers = {47};
  family.torchtitan = TitanPairs::no_model;
  return family;
}

}  // namespace ferry
