#include "convert/config_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

namespace ferry {
namespace {

using nlohmann::json;

json id_or_null(std::optional<int64_t> id) { return id ? json(*id) : json(); }

json rope_scaling(const Architecture& a) {
  switch (a.rope_scaling) {
    case RopeScaling::none:
      return {{"rope_type", "default"}};
    case RopeScaling::linear:
      return {{"rope_type", "linear"}, {"factor", a.rope_factor}};
    case RopeScaling::llama3:
      return {{"rope_type", "llama3"},
              {"factor", a.rope_factor},
              {"low_freq_factor", a.rope_low_freq_factor},
              {"high_freq_factor", a.rope_high_freq_factor},
              {"original_max_position_embeddings", a.rope_original_positions}};
    case RopeScaling::yarn:
      break;
  }
  json scaling = {{"rope_type", "yarn"},
                  {"factor", a.rope_factor},
                  {"original_max_position_embeddings", a.rope_original_positions},
                  {"beta_fast", a.rope_beta_fast},
                  {"beta_slow", a.rope_beta_slow},
                  {"mscale", a.rope_mscale},
                  {"mscale_all_dim", a.rope_mscale_all_dim}};
  // With either of the two at zero transformers ignores both, Megatron does not.
  if (a.rope_mscale == 0 || a.rope_mscale_all_dim == 0) {
    scaling["attention_factor"] =
        yarn_scale(a.rope_factor, a.rope_mscale) / yarn_scale(a.rope_factor, a.rope_mscale_all_dim);
  }
  return scaling;
}

void write_rope(const Architecture& a, json& config) {
  json parameters = rope_scaling(a);
  if (a.rope_scaling != RopeScaling::none) config["rope_scaling"] = parameters;
  parameters["rope_theta"] = a.rope_theta;
  config["rope_parameters"] = std::move(parameters);
  config["rope_theta"] = a.rope_theta;
}

// Of names that stand for the same, the first is written.
struct ActivationName {
  std::string_view name;
  Activation activation;
};
constexpr ActivationName kActivationNames[] = {
    {"silu", Activation::swiglu},         {"swish", Activation::swiglu},
    {"xielu", Activation::xielu},         {"relu2", Activation::squared_relu},
    {"gelu_new", Activation::gelu_tanh},  {"gelu_pytorch_tanh", Activation::gelu_tanh},
    {"gelu_fast", Activation::gelu_tanh}, {"quick_gelu", Activation::quick_geglu},
    {"gelu", Activation::gelu},           {"gelu", Activation::other},
};

std::string_view name_of(Activation activation) {
  const auto* found =
      std::find_if(std::begin(kActivationNames), std::end(kActivationNames),
                   [&](const ActivationName& each) { return each.activation == activation; });
  return found->name;
}

json ids(const std::vector<int64_t>& ids) {
  if (ids.empty()) return json();
  return ids.size() == 1 ? json(ids.front()) : json(ids);
}

}  // namespace

double yarn_scale(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

// Source: Megatron-LM gpt_builders.py, which leaves both factors out when it makes the model.
void tell_differences(const Family& family, const Architecture& a,
                      std::vector<std::string>& warnings) {
  constexpr double kFixedFactor = 8;
  const bool linear = a.rope_scaling == RopeScaling::linear;
  if (linear || (a.rope_scaling == RopeScaling::llama3 && a.rope_factor != kFixedFactor)) {
    warnings.push_back(fmt::format(
        "positions are scaled by {}, but Megatron-LM's pretrain_gpt.py does not hand {} on to the "
        "model, which then {}: add it in gpt_builders.py to compute the same",
        a.rope_factor, linear ? "--rotary-seq-len-interpolation-factor" : "--rope-scaling-factor",
        linear ? "does not scale them" : "scales them by 8"));
  }
  if (family.differences != nullptr) family.differences(a, warnings);
}

json config_json(const Family& family, const Architecture& a, DType dtype,
                 const SpecialTokens& tokens, std::vector<std::string>& warnings) {
  json config = {{"architectures", {family.class_name}},
                 {"model_type", family.name},
                 {"dtype", torch_name(dtype)},
                 {"torch_dtype", torch_name(dtype)},
                 {"use_cache", true},
                 {"bos_token_id", id_or_null(tokens.bos)},
                 {"eos_token_id", ids(tokens.eos)},
                 {"pad_token_id", id_or_null(tokens.pad)}};
  if (a.position_kind == Positions::rope) {
    config["hidden_act"] = name_of(a.activation);
    write_rope(a, config);
  }
  for (const ConfigField& field : family.fields) {
    std::visit([&](auto member) { config[std::string(field.key)] = a.*member; }, field.member);
  }
  if (family.write_config != nullptr) family.write_config(a, config, warnings);
  tell_differences(family, a, warnings);
  return config;
}

json generation_config_json(const SpecialTokens& tokens) {
  json config = {{"_from_model_config", true}};
  if (tokens.bos) config["bos_token_id"] = *tokens.bos;
  if (!tokens.eos.empty()) config["eos_token_id"] = ids(tokens.eos);
  if (tokens.pad) config["pad_token_id"] = *tokens.pad;
  return config;
}

Activation activation_of(std::string_view name) {
  for (const ActivationName& each : kActivationNames) {
    if (each.name == name) return each.activation;
  }
  return Activation::other;
}

}  // namespace ferry
