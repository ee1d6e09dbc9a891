// Qwen3-MoE (transformers/models/qwen3_moe): Qwen3 with experts, none of them shared.
#include "convert/families/list.h"
#include "convert/families/shared.h"

namespace ferry {

Family qwen3_moe_family() {
  using A = Architecture;
  return {
      .name = "qwen3_moe",
      .class_name = "Qwen3MoeForCausalLM",
      .rules = shared::join({shared::embedding(), shared::attention(), shared::dense_mlp(),
                             shared::experts(), shared::head()}),
      .config = shared::join(
          {shared::llama_config(),
           {codec::implied(&A::qk_norm, true), codec::plain("head_dim", &A::head_dim),
            codec::constant("attention_bias", false),
            codec::plain("moe_intermediate_size", &A::expert_ffn), codec::experts("num_experts"),
            codec::plain("num_local_experts", &A::experts),  // as transformers 5 saves it
            codec::plain("num_experts_per_tok", &A::experts_per_token),
            codec::plain("router_aux_loss_coef", &A::aux_loss_coeff),
            codec::renormalises("norm_topk_prob"), codec::optional_window(),
            codec::sparse_steps()}}),
      .defaults = R"({"num_key_value_heads": 4, "norm_topk_prob": false, "sliding_window": 4096,
                          "num_experts_per_tok": 8, "router_aux_loss_coef": 0.001})",
      .torchtitan = TitanPairs::halves};
}

}  // namespace ferry
