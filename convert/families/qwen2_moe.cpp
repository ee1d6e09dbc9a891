// Qwen1.5-MoE and Qwen2-MoE (transformers/models/qwen2_moe): Qwen2 with experts and one shared
// expert that has a gate of its own.
#include "convert/families/list.h"
#include "convert/families/shared.h"

namespace ferry {

Family qwen2_moe_family() {
  using A = Architecture;
  return {
      .name = "qwen2_moe",
      .class_name = "Qwen2MoeForCausalLM",
      .rules = shared::join({shared::embedding(), shared::attention(), shared::dense_mlp(),
                             shared::experts(), shared::gated_shared_expert(), shared::head()}),
      .config = shared::join(
          {shared::llama_config(),
           {codec::implied(&A::qkv_bias, true), codec::constant("qkv_bias", true),
            codec::unusual_head_dim(), codec::constant("use_sliding_window", false),
            codec::plain("moe_intermediate_size", &A::expert_ffn),
            codec::implied(&A::shared_gate, true),
            codec::shared_expert("shared_expert_intermediate_size"), codec::experts("num_experts"),
            codec::plain("num_experts_per_tok", &A::experts_per_token),
            codec::plain("router_aux_loss_coef", &A::aux_loss_coeff),
            codec::renormalises("norm_topk_prob"), codec::sparse_steps()}}),
      .defaults = R"({"num_key_value_heads": 16, "norm_topk_prob": false, "qkv_bias": true,
                          "num_experts_per_tok": 4, "router_aux_loss_coef": 0.001})"};
}

}  // namespace ferry
