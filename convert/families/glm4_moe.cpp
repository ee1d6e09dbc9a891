// GLM-4.5, 4.6 and 4.7 (transformers/models/glm4_moe): attention as Qwen's, of which half of each
// head is rotated, and DeepSeek-V3's mixture and MTP layers.
#include "convert/families/list.h"
#include "convert/families/shared.h"

namespace ferry {

Family glm4_moe_family() {
  using A = Architecture;
  return {
      .name = "glm4_moe",
      .class_name = "Glm4MoeForCausalLM",
      .rules = shared::join({shared::embedding(), shared::attention(), shared::dense_mlp(),
                             shared::experts(), shared::router_bias(), shared::shared_experts(),
                             shared::mtp_layers(), shared::head()}),
      .config = shared::join(
          {shared::llama_config(),
           {codec::plain("head_dim", &A::head_dim), codec::plain("attention_bias", &A::qkv_bias),
            codec::plain("use_qk_norm", &A::qk_norm), codec::partial_rotary()},
           shared::mixture_config(),
           {codec::implied(&A::router_score, RouterScore::sigmoid),
            codec::renormalises_chosen("norm_topk_prob"), codec::router_bias(),
            codec::mtp_layers("num_nextn_predict_layers")}}),
      .defaults = R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "use_qk_norm": false,
                          "attention_bias": false, "partial_rotary_factor": 0.5,
                          "first_k_dense_replace": 1, "n_shared_experts": 1,
                          "num_experts_per_tok": 8, "n_group": 1, "topk_group": 1,
                          "routed_scaling_factor": 1.0, "norm_topk_prob": true})",
      .differences =
          [](const A& a, std::vector<std::string>& warnings) {
            shared::warn_of_groups(a, {"glm4_moe", 2, "that of two"}, warnings);
          },
      .expected_mtp_layers = {46, 92}};
}

}  // namespace ferry
