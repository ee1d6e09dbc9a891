// GLM-5, 5.1 and 5.2 (transformers/models/glm_moe_dsa): DeepSeek-V3.2 whose indexers rotate pairs
// of elements next to each other, and may be in some layers only.
#include "convert/families/list.h"
#include "convert/families/shared.h"

namespace ferry {

Family glm_moe_dsa_family() {
  using A = Architecture;
  Family family = deepseek_v32_family();
  family.name = "glm_moe_dsa";
  family.class_name = "GlmMoeDsaForCausalLM";
  family.config =
      shared::join({family.config,
                    {codec::implied(&A::index_rope_interleaved, true),
                     codec::constant("indexer_rope_interleave", true), codec::indexer_layers()}});
  family.defaults = R"({"q_lora_rank": 2048, "n_shared_experts": 1, "n_group": 1, "topk_group": 1,
                        "routed_scaling_factor": 2.5, "num_experts_per_tok": 8,
                        "rms_norm_eps": 1e-5, "rope_interleave": true, "norm_topk_prob": true,
                        "index_n_heads": 32, "index_head_dim": 128, "index_topk": 2048,
                        "indexer_rope_interleave": true})";
  family.expected_mtp_layers = {78};
  return family;
}

}  // namespace ferry
