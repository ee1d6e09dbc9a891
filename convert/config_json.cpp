#include "convert/config_json.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <type_traits>

namespace ferry {
namespace {

using nlohmann::json;

json id_or_null(std::optional<int64_t> id) { return id ? json(*id) : json(); }

double yarn_scale(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

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

const char* hidden_act(Activation activation) {
  switch (activation) {
    case Activation::swiglu:
      return "silu";
    case Activation::xielu:
      return "xielu";
    case Activation::squared_relu:
      return "relu2";
    case Activation::gelu_tanh:
      return "gelu_new";
    case Activation::quick_geglu:
      return "quick_gelu";
    case Activation::gelu:
    case Activation::other:
      break;
  }
  return "gelu";
}

}  // namespace

json config_json(const Family& family, const Architecture& a, DType dtype,
                 const SpecialTokens& tokens, std::vector<std::string>& warnings) {
  json config = {{"architectures", {family.class_name}},
                 {"model_type", family.name},
                 {"dtype", torch_name(dtype)},
                 {"torch_dtype", torch_name(dtype)},
                 {"use_cache", true},
                 {"bos_token_id", id_or_null(tokens.bos)},
                 {"eos_token_id", id_or_null(tokens.eos)},
                 {"pad_token_id", id_or_null(tokens.pad)}};
  if (a.position_kind == Positions::rope) {
    config["hidden_act"] = hidden_act(a.activation);
    write_rope(a, config);
  }
  for (const ConfigField& field : family.fields) {
    std::visit([&](auto member) { config[std::string(field.key)] = a.*member; }, field.member);
  }
  if (family.write_config != nullptr) family.write_config(a, config, warnings);
  return config;
}

json generation_config_json(const SpecialTokens& tokens) {
  json config = {{"_from_model_config", true}};
  if (tokens.bos) config["bos_token_id"] = *tokens.bos;
  if (tokens.eos) config["eos_token_id"] = *tokens.eos;
  if (tokens.pad) config["pad_token_id"] = *tokens.pad;
  return config;
}

Architecture read_config_fields(const Family& family, const json& config) {
  Architecture a;
  for (const ConfigField& field : family.fields) {
    const auto found = config.find(std::string(field.key));
    if (found == config.end()) continue;
    std::visit(
        [&](auto member) {
          using T = std::remove_reference_t<decltype(a.*member)>;
          const bool fits = std::is_same_v<T, bool>     ? found->is_boolean()
                            : std::is_same_v<T, double> ? found->is_number()
                                                        : found->is_number_integer();
          if (fits) a.*member = found->template get<T>();
        },
        field.member);
  }
  return a;
}

}  // namespace ferry
