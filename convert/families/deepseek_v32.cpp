// DeepSeek-V3.2 (transformers/models/deepseek_v32): V3 with an indexer in every layer, which
// chooses the tokens that it attends to.
#include "convert/families/list.h"
#include "convert/families/shared.h"

namespace ferry {

Family deepseek_v32_family() {
  using A = Architecture;
  Family family = deepseek_v3_family();
  family.name = "deepseek_v32";
  family.class_name = "DeepseekV32ForCausalLM";
  family.rules = shared::join({shared::embedding(), shared::latent_attention(), shared::indexer(),
                               shared::dense_mlp(), shared::experts(), shared::router_bias(),
                               shared::shared_experts(), shared::mtp_layers(), shared::head()});
  family.config = shared::join(
      {{codec::mixture_kinds(3)},
       family.config,
       shared::indexer_config(),
       {codec::constant("mlp_bias", false), codec::implied(&A::index_rope_interleaved, false)}});
  family.defaults = R"({"q_lora_rank": 1536, "n_shared_experts": 1, "n_group": 8, "topk_group": 4,
                        "routed_scaling_factor": 2.5, "num_experts_per_tok": 8,
                        "rope_interleave": true, "norm_topk_prob": true, "index_n_heads": 64,
                        "index_head_dim": 128, "index_topk": 2048})";
  family.differences = [](const A& a, std::vector<std::string>& warnings) {
    shared::warn_of_latent_norms(a, warnings);
    shared::warn_of_index_norm(a, warnings);
    shared::warn_of_groups(a, {"transformers", 2, "that of two"}, warnings);
  };
  family.torchtitan = TitanPairs::no_model;
  return family;
}

}  // namespace ferry
