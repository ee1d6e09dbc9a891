// DeepSeek-V3 and R1 (transformers/models/deepseek_v3): as V2, with a sigmoid router that has a
// bias and renormalises, and MTP layers, stored after the last layer.
#include "convert/families/list.h"
#include "convert/families/shared.h"

namespace ferry {

Family deepseek_v3_family() {
  using A = Architecture;
  return {
      .name = "deepseek_v3",
      .class_name = "DeepseekV3ForCausalLM",
      .rules = shared::join({shared::embedding(), shared::latent_attention(), shared::dense_mlp(),
                             shared::experts(), shared::router_bias(), shared::shared_experts(),
                             shared::mtp_layers(), shared::head()}),
      .config = shared::join(
          {shared::llama_config(),
           shared::latent_config(),
           shared::mixture_config(),
           {codec::constant("moe_layer_freq", 1), codec::constant("rope_interleave", true),
            codec::constant("ep_size", 1), codec::implied(&A::router_score, RouterScore::sigmoid),
            codec::implied(&A::router_pre_softmax, true),
            codec::of_mixtures("scoring_func", "sigmoid"),
            codec::of_mixtures("topk_method", "noaux_tc"),
            codec::renormalises_chosen("norm_topk_prob"), codec::router_bias(),
            codec::mtp_layers("num_nextn_predict_layers"),
            codec::plain("aux_loss_alpha", &A::aux_loss_coeff)}}),
      .defaults = R"({"q_lora_rank": 1536, "first_k_dense_replace": 3, "n_shared_experts": 1,
                          "n_group": 8, "topk_group": 4, "routed_scaling_factor": 2.5,
                          "num_experts_per_tok": 8, "moe_layer_freq": 1, "rope_interleave": true,
                          "norm_topk_prob": true})",
      .differences =
          [](const A& a, std::vector<std::string>& warnings) {
            shared::warn_of_latent_norms(a, warnings);
            shared::warn_of_groups(a, {"deepseek_v3", 2, "that of two"}, warnings);
          },
      .expected_mtp_layers = {61},
      .torchtitan = TitanPairs::halves};
}

}  // namespace ferry
