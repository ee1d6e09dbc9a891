// gpt-oss (transformers/models/gpt_oss): Mixtral with a learned score for no key, biases
// everywhere, windows in every second layer and a clamped activation. Each tensor of experts holds
// all of them, transposed, with columns of gate and up in turn.
#include "convert/families/list.h"
#include "convert/families/shared.h"

namespace ferry {
namespace {

std::vector<Rule> gpt_oss_mixture() {
  return {
      {"decoder.layers.{layer}.pre_mlp_layernorm.weight",
       {"model.layers.{layer}.post_attention_layernorm.weight"}},
      {"decoder.layers.{layer}.mlp.router.weight", {"model.layers.{layer}.mlp.router.weight"}},
      {"decoder.layers.{layer}.mlp.router.bias", {"model.layers.{layer}.mlp.router.bias"}},
      {"decoder.layers.{layer}.mlp.experts.experts.{expert}.linear_fc1.weight",
       {"model.layers.{layer}.mlp.experts.gate_up_proj"},
       Transform::gate_up_columns},
      {"decoder.layers.{layer}.mlp.experts.experts.{expert}.linear_fc1.bias",
       {"model.layers.{layer}.mlp.experts.gate_up_proj_bias"},
       Transform::gate_up_columns},
      {"decoder.layers.{layer}.mlp.experts.experts.{expert}.linear_fc2.weight",
       {"model.layers.{layer}.mlp.experts.down_proj"},
       Transform::transpose},
      {"decoder.layers.{layer}.mlp.experts.experts.{expert}.linear_fc2.bias",
       {"model.layers.{layer}.mlp.experts.down_proj_bias"}},
  };
}

}  // namespace

Family gpt_oss_family() {
  using A = Architecture;
  return {
      .name = "gpt_oss",
      .class_name = "GptOssForCausalLM",
      .rules =
          shared::join({shared::embedding(),
                        shared::attention(),
                        {{"decoder.layers.{layer}.self_attention.core_attention.softmax_offset",
                          {"model.layers.{layer}.self_attn.sinks"}}},
                        gpt_oss_mixture(),
                        shared::head()}),
      .config = shared::join(
          {shared::llama_config(std::nullopt),
           {codec::plain("head_dim", &A::head_dim), codec::implied(&A::sinks, true),
            codec::implied(&A::linear_bias, true), codec::constant("attention_bias", true),
            codec::clamped_glu(), codec::plain("intermediate_size", &A::expert_ffn),
            codec::experts("num_local_experts"),
            codec::plain("num_experts_per_tok", &A::experts_per_token),
            codec::plain("router_aux_loss_coef", &A::aux_loss_coeff), codec::window_by_kind(2)}}),
      .defaults = R"({"num_key_value_heads": 8, "head_dim": 64, "rms_norm_eps": 1e-5,
                          "rope_theta": 150000.0, "sliding_window": 128, "attention_bias": true,
                          "num_experts_per_tok": 4, "router_aux_loss_coef": 0.001,
                          "swiglu_alpha": 1.702, "swiglu_limit": 7.0,
                          "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0,
                                           "beta_slow": 1.0, "truncate": false,
                                           "original_max_position_embeddings": 4096}})"};
}

}  // namespace ferry
