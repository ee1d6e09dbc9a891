// Apertus (transformers/models/apertus): query/key norms, an MLP without gate and the xIELU
// activation, whose two learned numbers a layer both sides keep before their softplus.
#include "convert/families/list.h"
#include "convert/families/shared.h"

namespace ferry {
namespace {

// The class reads the activation's constants from the file too: when they are missing it computes
// with uninitialised memory, without an error.
std::vector<Rule> apertus_mlp() {
  return {
      {"decoder.layers.{layer}.mlp.linear_fc1.layer_norm_weight",
       {"model.layers.{layer}.feedforward_layernorm.weight"}},
      {"decoder.layers.{layer}.mlp.linear_fc1.weight", {"model.layers.{layer}.mlp.up_proj.weight"}},
      {"decoder.layers.{layer}.mlp.activation_func.alpha_p",
       {"model.layers.{layer}.mlp.act_fn.alpha_p"},
       Transform::single},
      {"decoder.layers.{layer}.mlp.activation_func.alpha_n",
       {"model.layers.{layer}.mlp.act_fn.alpha_n"},
       Transform::single},
      {.megatron = "",
       .hugging_face = {"model.layers.{layer}.mlp.act_fn.beta"},
       .transform = Transform::constant,
       .shape = {},
       .value = 0.5},
      {.megatron = "",
       .hugging_face = {"model.layers.{layer}.mlp.act_fn.eps"},
       .transform = Transform::constant,
       .shape = {},
       .value = -1e-6},
      {"decoder.layers.{layer}.mlp.linear_fc2.weight",
       {"model.layers.{layer}.mlp.down_proj.weight"}},
  };
}

std::vector<Rule> apertus_attention() {
  std::vector<Rule> rules = shared::attention();
  rules.front().hugging_face = {"model.layers.{layer}.attention_layernorm.weight"};
  return rules;
}

}  // namespace

Family apertus_family() {
  return {.name = "apertus",
          .class_name = "ApertusForCausalLM",
          .rules = shared::join(
              {shared::embedding(), apertus_attention(), apertus_mlp(), shared::head()}),
          .config =
              shared::join({shared::llama_config(Activation::xielu),
                            {codec::implied(&Architecture::qk_norm, true),
                             codec::constant("attention_bias", false), codec::unusual_head_dim()}}),
          .defaults = R"({"num_key_value_heads": 32, "rms_norm_eps": 1e-5, "rope_theta": 12e6,
                          "hidden_act": "xielu",
                          "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
                                           "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                           "original_max_position_embeddings": 8192}})",
          .differences = [](const Architecture&, std::vector<std::string>& warnings) {
            warnings.push_back(
                "Megatron takes the softplus of xIELU's alphas in bf16, transformers in the "
                "model's dtype: logits agree to about 1e-3 of their mean size");
          }};
}

}  // namespace ferry
