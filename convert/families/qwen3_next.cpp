// Qwen3-Next, Qwen3.5 and 3.6 (transformers/models/{qwen3_next,qwen3_5,qwen3_5_moe}): gated delta
// nets in most layers, attention with an output gate in the others, norms stored less 1.
#include <utility>

#include "convert/families/list.h"
#include "convert/families/shared.h"

namespace ferry {
namespace {

using A = Architecture;

// The families differ in how they hold the delta net's input.
std::vector<Rule> delta_net(std::vector<std::string_view> input, Transform transform) {
  return {
      {"decoder.layers.{layer}.self_attention.in_proj.layer_norm_weight",
       {"model.layers.{layer}.input_layernorm.weight"}},
      {"decoder.layers.{layer}.self_attention.dt_bias",
       {"model.layers.{layer}.linear_attn.dt_bias"}},
      {"decoder.layers.{layer}.self_attention.A_log", {"model.layers.{layer}.linear_attn.A_log"}},
      {"decoder.layers.{layer}.self_attention.conv1d.weight",
       {"model.layers.{layer}.linear_attn.conv1d.weight"}},
      {.megatron = "decoder.layers.{layer}.self_attention.in_proj.weight",
       .hugging_face = std::move(input),
       .transform = transform},
      {.megatron = "decoder.layers.{layer}.self_attention.out_norm.weight",
       .hugging_face = {"model.layers.{layer}.linear_attn.norm.weight"},
       .plain_norm = true},
      {"decoder.layers.{layer}.self_attention.out_proj.weight",
       {"model.layers.{layer}.linear_attn.out_proj.weight"}},
  };
}

std::vector<Rule> flat_delta_net() {
  return delta_net({"model.layers.{layer}.linear_attn.in_proj_qkv.weight",
                    "model.layers.{layer}.linear_attn.in_proj_z.weight",
                    "model.layers.{layer}.linear_attn.in_proj_b.weight",
                    "model.layers.{layer}.linear_attn.in_proj_a.weight"},
                   Transform::delta_net);
}

std::vector<Rule> delta_net_by_head() {
  return delta_net({"model.layers.{layer}.linear_attn.in_proj_qkvz.weight",
                    "model.layers.{layer}.linear_attn.in_proj_ba.weight"},
                   Transform::delta_net_by_head);
}

// A layer of attention, between these.
std::vector<Rule> mtp_layer() {
  return {
      {"mtp.layers.{mtp}.eh_proj.weight", {"mtp.fc.weight"}},
      {"mtp.layers.{mtp}.enorm.weight", {"mtp.pre_fc_norm_embedding.weight"}},
      {"mtp.layers.{mtp}.hnorm.weight", {"mtp.pre_fc_norm_hidden.weight"}},
      {"mtp.layers.{mtp}.final_layernorm.weight", {"mtp.norm.weight"}},
  };
}

// A size of delta nets.
ConfigRow delta_net_size(std::string_view key, int64_t A::*member) {
  return codec::only_where([](const A& a) { return a.any_linear(); }, codec::plain(key, member));
}

std::vector<ConfigRow> common_config() {
  return {codec::implied(&A::qk_norm, true),
          codec::implied(&A::zero_centered_norms, true),
          codec::implied(&A::output_gate, true),
          codec::plain("head_dim", &A::head_dim),
          codec::constant("attention_bias", false),
          codec::partial_rotary(),
          codec::linear_layers(),
          delta_net_size("linear_num_key_heads", &A::linear_key_heads),
          delta_net_size("linear_num_value_heads", &A::linear_value_heads),
          delta_net_size("linear_key_head_dim", &A::linear_key_dim),
          delta_net_size("linear_value_head_dim", &A::linear_value_dim),
          delta_net_size("linear_conv_kernel_dim", &A::linear_conv)};
}

// A class whose layers are all mixtures has no width of other MLPs, which Megatron's arguments
// need.
std::vector<ConfigRow> config_of_mixtures() {
  std::vector<ConfigRow> rows = shared::llama_config();
  std::erase_if(rows, [](const ConfigRow& row) { return row.size == &A::ffn; });
  return rows;
}

ConfigRow no_dense_layers() {
  return {.read = [](nlohmann::json&, A& a) { a.ffn = a.expert_ffn; }};
}

std::vector<ConfigRow> mixture_config() {
  return {codec::plain("moe_intermediate_size", &A::expert_ffn),
          codec::implied(&A::shared_gate, true),
          codec::shared_expert("shared_expert_intermediate_size"),
          codec::experts("num_experts"),
          codec::plain("num_experts_per_tok", &A::experts_per_token),
          codec::plain("router_aux_loss_coef", &A::aux_loss_coeff)};
}

}  // namespace

Family qwen3_next_family() {
  return {.name = "qwen3_next",
          .class_name = "Qwen3NextForCausalLM",
          .rules = shared::join({shared::embedding(), delta_net_by_head(), shared::attention(),
                                 shared::dense_mlp(), shared::experts(),
                                 shared::gated_shared_expert(), mtp_layer(), shared::head()}),
          .config = shared::join({shared::llama_config(),
                                  common_config(),
                                  mixture_config(),
                                  {codec::renormalises("norm_topk_prob"), codec::sparse_steps(),
                                   codec::one_mtp_layer()}}),
          .defaults = R"({"num_key_value_heads": 2, "partial_rotary_factor": 0.25, "head_dim": 256,
                          "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
                          "linear_value_head_dim": 128, "linear_num_key_heads": 16,
                          "linear_num_value_heads": 32, "num_experts_per_tok": 10,
                          "norm_topk_prob": true, "router_aux_loss_coef": 0.001})",
          .zero_centered_norms = true,
          .mtp_prefix = "mtp.layers.{mtp}."};
}

Family qwen3_5_family() {
  return {.name = "qwen3_5_text",
          .class_name = "Qwen3_5ForCausalLM",
          .rules = shared::join({shared::embedding(), flat_delta_net(), shared::attention(),
                                 shared::dense_mlp(), mtp_layer(), shared::head()}),
          .config = shared::join({shared::llama_config(),
                                  common_config(),
                                  {codec::one_mtp_layer("mtp_num_hidden_layers")}}),
          .defaults = R"({"num_key_value_heads": 4, "partial_rotary_factor": 0.25, "head_dim": 256,
                          "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
                          "linear_value_head_dim": 128, "linear_num_key_heads": 16,
                          "linear_num_value_heads": 32})",
          .zero_centered_norms = true,
          .mtp_prefix = "mtp.layers.{mtp}."};
}

Family qwen3_5_moe_family() {
  return {
      .name = "qwen3_5_moe_text",
      .class_name = "Qwen3_5MoeForCausalLM",
      .rules = shared::join({shared::embedding(), flat_delta_net(), shared::attention(),
                             shared::experts(), shared::gated_shared_expert(), mtp_layer(),
                             shared::head()}),
      .config = shared::join({config_of_mixtures(),
                              common_config(),
                              mixture_config(),
                              {no_dense_layers(), codec::one_mtp_layer("mtp_num_hidden_layers")}}),
      .defaults = R"({"num_key_value_heads": 2, "partial_rotary_factor": 0.25, "head_dim": 256,
                          "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
                          "linear_value_head_dim": 128, "linear_num_key_heads": 16,
                          "linear_num_value_heads": 32, "num_experts_per_tok": 8,
                          "router_aux_loss_coef": 0.001})",
      .zero_centered_norms = true,
      .mtp_prefix = "mtp.layers.{mtp}."};
}

}  // namespace ferry
