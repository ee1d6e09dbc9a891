// DeepSeek-V2 (transformers/models/deepseek_v2): latent attention, dense first layers, experts with
// a softmax router whose weights are not renormalised.
#include "convert/families/list.h"
#include "convert/families/shared.h"

namespace ferry {
Family deepseek_v2_family() {
  using A = Architecture;
  return {
      .name = "deepseek_v2",
      .class_name = "DeepseekV2ForCausalLM",
      .rules = shared::join({shared::embedding(), shared::latent_attention(), shared::dense_mlp(),
                             shared::experts(), shared::shared_experts(), shared::head()}),
      .config =
          shared::join({shared::llama_config(),
                        shared::latent_config(),
                        shared::mixture_config(),
                        {codec::constant("mlp_bias", false), codec::constant("moe_layer_freq", 1),
                         codec::constant("scoring_func", "softmax"),
                         codec::implied(&A::router_pre_softmax, true),
                         codec::or_null(codec::constant("norm_topk_prob", false)),
                         codec::plain("aux_loss_alpha", &A::aux_loss_coeff), codec::router_method(),
                         codec::even_heads()}}),
      .defaults = R"({"q_lora_rank": 1536, "first_k_dense_replace": 0, "n_shared_experts": 2,
                          "topk_method": "greedy", "moe_layer_freq": 1})",
      .differences = [](const A& a, std::vector<std::string>& warnings) {
        shared::warn_of_latent_norms(a, warnings);
        shared::warn_of_groups(a, {"deepseek_v2", 1, "the best one"}, warnings);
      }};
}

}  // namespace ferry
