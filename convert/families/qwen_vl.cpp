// The language models of Qwen2.5-VL and Qwen3-VL (transformers/models/qwen2_5_vl, qwen3_vl and
// qwen3_vl_moe): Qwen2, Qwen3 and Qwen3-MoE, whose positions are the same along all three axes
// where there are no pictures. The mixtures hold the experts of a layer in two tensors, transposed.
#include "convert/families/list.h"
#include "convert/families/shared.h"

namespace ferry {

Family qwen2_5_vl_family() {
  Family family = qwen2_family();
  family.name = "qwen2_5_vl_text";
  family.class_name = "Qwen2_5_VLForConditionalGeneration";
  family.defaults = R"({"num_key_value_heads": 8, "sliding_window": 4096, "max_window_layers": 80,
                        "rms_norm_eps": 1e-5, "rope_theta": 1000000.0})";
  return family;
}

Family qwen3_vl_family() {
  using A = Architecture;
  Family family = qwen3_family();
  family.name = "qwen3_vl_text";
  family.class_name = "Qwen3VLForConditionalGeneration";
  family.config =
      shared::join({shared::llama_config(),
                    {codec::implied(&A::qk_norm, true), codec::plain("head_dim", &A::head_dim),
                     codec::constant("attention_bias", false)}});
  family.defaults = R"({"num_key_value_heads": 32, "head_dim": 128, "rope_theta": 500000.0})";
  family.torchtitan = TitanPairs::no_model;
  return family;
}

Family qwen3_vl_moe_family() {
  using A = Architecture;
  Family family = qwen3_moe_family();
  family.name = "qwen3_vl_moe_text";
  family.class_name = "Qwen3VLMoeForConditionalGeneration";
  for (Rule& rule : family.rules) {
    if (rule.megatron.ends_with("{expert}.linear_fc1.weight")) {
      rule.hugging_face = {"model.layers.{layer}.mlp.experts.gate_up_proj"};
      rule.transform = Transform::gate_up_transpose;
    } else if (rule.megatron.ends_with("{expert}.linear_fc2.weight")) {
      rule.hugging_face = {"model.layers.{layer}.mlp.experts.down_proj"};
      rule.transform = Transform::transpose;
    }
  }
  family.config = shared::join(
      {shared::llama_config(),
       {codec::implied(&A::qk_norm, true), codec::or_null(codec::plain("head_dim", &A::head_dim)),
        codec::constant("attention_bias", false),
        codec::plain("moe_intermediate_size", &A::expert_ffn), codec::experts("num_experts"),
        codec::plain("num_local_experts", &A::experts),  // as transformers 5 saves it
        codec::plain("num_experts_per_tok", &A::experts_per_token),
        codec::plain("router_aux_loss_coef", &A::aux_loss_coeff), codec::sparse_steps(),
        codec::indifferent("norm_topk_prob", true)}});
  family.defaults = R"({"num_key_value_heads": 16, "rope_theta": 500000.0,
                        "num_experts_per_tok": 4, "router_aux_loss_coef": 0.001})";
  family.torchtitan = TitanPairs::no_model;
  return family;
}

}  // namespace ferry
