// Mixtral (transformers/models/mixtral): Mistral with experts in every layer. Files keep the names
// w1 (gate), w2 (down) and w3 (up) of each expert.
#include "convert/families/list.h"
#include "convert/families/shared.h"

namespace ferry {
namespace {

std::vector<Rule> mixtral_experts() {
  return {
      {"decoder.layers.{layer}.pre_mlp_layernorm.weight",
       {"model.layers.{layer}.post_attention_layernorm.weight"}},
      {"decoder.layers.{layer}.mlp.router.weight",
       {"model.layers.{layer}.block_sparse_moe.gate.weight"}},
      {"decoder.layers.{layer}.mlp.experts.experts.{expert}.linear_fc1.weight",
       {"model.layers.{layer}.block_sparse_moe.experts.{expert}.w1.weight",
        "model.layers.{layer}.block_sparse_moe.experts.{expert}.w3.weight"},
       Transform::gate_up},
      {"decoder.layers.{layer}.mlp.experts.experts.{expert}.linear_fc2.weight",
       {"model.layers.{layer}.block_sparse_moe.experts.{expert}.w2.weight"}},
  };
}

}  // namespace

Family mixtral_family() {
  using A = Architecture;
  return {
      .name = "mixtral",
      .class_name = "MixtralForCausalLM",
      .rules = shared::join(
          {shared::embedding(), shared::attention(), mixtral_experts(), shared::head()}),
      .config = shared::join(
          {shared::llama_config(),
           {codec::or_null(codec::plain("head_dim", &A::head_dim)),
            codec::plain("intermediate_size", &A::expert_ffn), codec::experts("num_local_experts"),
            codec::plain("num_experts_per_tok", &A::experts_per_token),
            codec::plain("router_aux_loss_coef", &A::aux_loss_coeff), codec::window()}}),
      .defaults = R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 1e6,
                          "num_experts_per_tok": 2, "router_aux_loss_coef": 0.001})",
      .spellings = {{".block_sparse_moe.", ".mlp."}}};
}

}  // namespace ferry
