// Rotary positions in config.json: transformers 5 has them in rope_parameters, 4 in rope_theta and
// rope_scaling.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "convert/config/codecs.h"
#include "convert/config/number_checks.h"
#include "convert/config_value.h"

namespace ferry {
namespace {

using nlohmann::json;
using A = Architecture;

constexpr double kSameFactor = 1e-6;  // relative
constexpr const char* kOriginal = "original_max_position_embeddings";

// YaRN's attention factor is one of these, or the quotient of two.
double yarn_scale(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

// "mrope" is the usual one for text: its three axes are of pictures.
std::string scaling_type(const json& scaling) {
  const std::string type = text_of(scaling, "rope_type", text_of(scaling, "type", "default"));
  return type == "mrope" ? "default" : type;
}

void read_rope(json& config, A& a) {
  const json scaling = rope_scaling_of(config);
  a.rope_theta = number_of(scaling, "rope_theta", number_of(config, "rope_theta", a.rope_theta));
  const std::string type = scaling_type(scaling);
  if (type == "linear") a.rope_scaling = RopeScaling::linear;
  if (type == "llama3") a.rope_scaling = RopeScaling::llama3;
  if (type == "yarn") a.rope_scaling = RopeScaling::yarn;
  if (a.rope_scaling == RopeScaling::none) return;
  a.rope_factor = number_of(scaling, "factor", 1);
  if (a.rope_scaling == RopeScaling::linear) return;
  a.rope_original_positions =
      integer_of(scaling, kOriginal, integer_of(config, kOriginal, a.positions));
  a.rope_low_freq_factor = number_of(scaling, "low_freq_factor", a.rope_low_freq_factor);
  a.rope_high_freq_factor = number_of(scaling, "high_freq_factor", a.rope_high_freq_factor);
  a.rope_beta_fast = number_of(scaling, "beta_fast", a.rope_beta_fast);
  a.rope_beta_slow = number_of(scaling, "beta_slow", a.rope_beta_slow);
  a.rope_mscale = number_of(scaling, "mscale", a.rope_mscale);
  a.rope_mscale_all_dim = number_of(scaling, "mscale_all_dim", a.rope_mscale_all_dim);
  a.rope_truncates = boolean_of(scaling, "truncate", true);
}

json rope_scaling(const A& a) {
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
              {kOriginal, a.rope_original_positions}};
    case RopeScaling::yarn:
      break;
  }
  json scaling = {{"rope_type", "yarn"},
                  {"factor", a.rope_factor},
                  {kOriginal, a.rope_original_positions},
                  {"beta_fast", a.rope_beta_fast},
                  {"beta_slow", a.rope_beta_slow}};
  if (!a.rope_truncates) scaling["truncate"] = false;
  const bool is_usual = a.rope_mscale == 1 && a.rope_mscale_all_dim == 0;
  if (is_usual && !a.mla) return scaling;  // what transformers takes where neither is given
  scaling["mscale"] = a.rope_mscale;
  scaling["mscale_all_dim"] = a.rope_mscale_all_dim;
  // With either of the two at zero transformers ignores both, Megatron does not.
  if (a.rope_mscale == 0 || a.rope_mscale_all_dim == 0) {
    scaling["attention_factor"] =
        yarn_scale(a.rope_factor, a.rope_mscale) / yarn_scale(a.rope_factor, a.rope_mscale_all_dim);
  }
  return scaling;
}

// Both releases of transformers read what is written.
void write_rope(const A& a, json& config) {
  json parameters = rope_scaling(a);
  if (a.rope_scaling != RopeScaling::none) config["rope_scaling"] = parameters;
  parameters["rope_theta"] = a.rope_theta;
  config["rope_parameters"] = std::move(parameters);
  config["rope_theta"] = a.rope_theta;
}

// transformers takes the quotient only where both factors are given.
void check_yarn(const json& scaling, const A& a, std::vector<std::string>& reasons) {
  const double scale = number_of(scaling, "mscale", 0);
  const double all = number_of(scaling, "mscale_all_dim", 0);
  const bool both = scale != 0 && all != 0;
  const double usual = both ? yarn_scale(a.rope_factor, scale) / yarn_scale(a.rope_factor, all)
                            : yarn_scale(a.rope_factor, 1);
  const double expected = number_of(scaling, "attention_factor", usual);
  const double megatron =
      yarn_scale(a.rope_factor, a.rope_mscale) / yarn_scale(a.rope_factor, a.rope_mscale_all_dim);
  if (std::fabs(expected - megatron) > kSameFactor * std::fabs(expected)) {
    reasons.push_back(fmt::format("YaRN's attention factor is {}, Megatron's formula gives {}",
                                  expected, megatron));
  }
}

// What transformers computes with must be there.
void check_members(const json& config, const json& scaling, const std::string& type,
                   std::vector<std::string>& reasons) {
  std::vector<const char*> needed;
  if (type == "linear" || type == "yarn") needed = {"factor"};
  if (type == "llama3") needed = {"factor", "low_freq_factor", "high_freq_factor"};
  const json& theta = scaling.contains("rope_theta") ? scaling : config;
  if (theta.contains("rope_theta") && theta["rope_theta"].is_null()) {
    reasons.push_back("rope_theta is null, not a number");
  }
  for (const char* key : {"rope_type", "type"}) {
    if (!scaling.contains(key) || scaling[key].is_string()) continue;
    reasons.push_back(fmt::format("{} is {}, not a name", key, shown(scaling[key])));
  }
  for (const char* key : needed) {
    if (scaling.value(key, json()).is_null()) {
      reasons.push_back(fmt::format("the scaling of positions ({}) has no {}", type, key));
    }
  }
}

// A part of odd size is rounded up, for which a whole head has no room.
void require_even_heads(const A& a, std::string_view, std::vector<std::string>& reasons) {
  const int64_t head = a.mla ? a.qk_rope_dim : a.head_dim;
  const int64_t rotated = a.mla ? a.qk_rope_dim : a.rotary_part();
  if (head % 2 == 0 || rotated < head) return;
  reasons.push_back(fmt::format("rotary positions need an even number of elements, not {}", head));
}

void check_rope(const json& config, const A& a, std::vector<std::string>& reasons) {
  const json scaling = rope_scaling_of(config);
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const json value = config.value(key, json());
    if (value.is_null() || value.is_object()) continue;
    reasons.push_back(fmt::format("{} is {}, not an object", key, shown(value)));
  }
  const std::string type = scaling_type(scaling);
  const bool known = type == "default" || a.rope_scaling != RopeScaling::none;
  const bool nested = std::any_of(scaling.begin(), scaling.end(),
                                  [](const json& value) { return value.is_object(); });
  if (!known || nested) {
    reasons.push_back(fmt::format("the scaling of positions is {}, which Megatron has not",
                                  nested ? "by kind of layer" : type));
  }
  const double rotated =
      number_of(scaling, "partial_rotary_factor", number_of(config, "partial_rotary_factor", 1));
  if (rotated != a.rotary_fraction) {
    reasons.push_back(fmt::format(
        "partial_rotary_factor is {}, but this model type rotates whole heads", rotated));
  }
  check_members(config, scaling, type, reasons);
  if (a.rope_scaling == RopeScaling::yarn) check_yarn(scaling, a, reasons);
}

void check_rope_numbers(const json& config, std::vector<std::string>& reasons) {
  constexpr std::string_view kReal[] = {"rope_theta",       "partial_rotary_factor",
                                        "factor",           "low_freq_factor",
                                        "high_freq_factor", "beta_fast",
                                        "beta_slow",        "mscale",
                                        "mscale_all_dim",   "attention_factor"};
  NumberChecks numbers(config, reasons);
  numbers.check_real("rope_theta");
  numbers.check_real("partial_rotary_factor");
  numbers.check_whole(kOriginal, 1, kMaxModelSize);
  const json scaling = rope_scaling_of(config);
  NumberChecks of_scaling(scaling, reasons);
  for (const std::string_view key : kReal) of_scaling.check_real(key);
  of_scaling.check_whole(kOriginal, 1, kMaxModelSize);
}

constexpr const char *kParameters = "rope_parameters", *kLocalTheta = "rope_local_base_freq";
constexpr const char *kFull = "full_attention", *kWindowed = "sliding_attention";

// The positions of a kind of layer, as the configuration of a model whose layers are all so. Older
// files scale those of layers without a window alone.
json of_kind(const json& config, const char* kind) {
  json flat = json::object();
  const bool is_full = kind == std::string_view(kFull);
  const char* theta = is_full ? "rope_theta" : kLocalTheta;
  if (config.contains(theta)) flat["rope_theta"] = config[theta];
  if (config.contains("max_position_embeddings")) {
    flat["max_position_embeddings"] = config["max_position_embeddings"];
  }
  if (is_full && config.contains("rope_scaling")) flat["rope_scaling"] = config["rope_scaling"];
  const json parameters = config.value(kParameters, json());
  const bool by_kind =
      parameters.is_object() && (parameters.contains(kFull) || parameters.contains(kWindowed));
  if (by_kind) {
    const json of = parameters.value(kind, json::object());
    if (of.is_object() && !of.empty()) {
      flat[kParameters] = of;
      flat.erase("rope_scaling");
    }
  } else if (parameters.is_object() && !parameters.empty()) {
    flat[kParameters] = parameters;
  }
  return flat;
}

bool has_windows(const A& a) {
  for (int64_t layer = 0; layer < a.layers; ++layer) {
    if (a.has_window(layer)) return true;
  }
  return false;
}

}  // namespace

ConfigRow codec::rope_by_kind(double windowed_theta) {
  return {.keys = {"rope_theta", kParameters, "rope_scaling", kLocalTheta, kOriginal},
          .nullable = {"rope_theta", kParameters, "rope_scaling", kLocalTheta, kOriginal},
          .read =
              [=](json& config, A& a) {
                json full = of_kind(config, kFull);
                read_rope(full, a);
                if (a.rope_scaling != RopeScaling::none && a.rope_original_positions == 0) {
                  a.rope_original_positions = a.positions;
                }
                A windowed = a;
                windowed.rope_theta = windowed_theta;
                json local = of_kind(config, kWindowed);
                read_rope(local, windowed);
                const bool alike =
                    windowed.rope_theta == a.rope_theta && a.rope_scaling == RopeScaling::none;
                if (has_windows(a) && !alike) a.windowed_rope_theta = windowed.rope_theta;
                config.erase(kLocalTheta);
              },
          .write =
              [=](const A& a, json& config) {
                write_rope(a, config);
                const bool apart = a.windowed_rope_theta > 0;
                const double theta = apart            ? a.windowed_rope_theta
                                     : has_windows(a) ? a.rope_theta
                                                      : windowed_theta;
                json full = config[kParameters];
                config[kParameters] = {
                    {kFull, full}, {kWindowed, {{"rope_type", "default"}, {"rope_theta", theta}}}};
                config[kLocalTheta] = theta;
              },
          .check_numbers =
              [](const json& config, std::vector<std::string>& reasons) {
                for (const char* kind : {kFull, kWindowed}) {
                  check_rope_numbers(of_kind(config, kind), reasons);
                }
              },
          .check =
              [](const json& config, const A& a, std::vector<std::string>& reasons) {
                check_rope(of_kind(config, kFull), a, reasons);
                A windowed = a;
                windowed.rope_scaling = RopeScaling::none;
                check_rope(of_kind(config, kWindowed), windowed, reasons);
                if (a.rope_scaling != RopeScaling::none && has_windows(a) &&
                    scaling_type(rope_scaling_of(of_kind(config, kWindowed))) != "default") {
                  reasons.push_back("the positions of layers with a window are scaled");
                }
              },
          .unsupported = require_even_heads};
}

ConfigRow codec::rope() {
  return {
      .keys = {"rope_theta", "rope_parameters", "rope_scaling", kOriginal, "partial_rotary_factor"},
      .nullable = {"rope_theta", "rope_parameters", "rope_scaling", kOriginal,
                   "partial_rotary_factor"},
      .read = read_rope,
      .write = write_rope,
      .check_numbers = check_rope_numbers,
      .check = check_rope,
      .unsupported = require_even_heads};
}

}  // namespace ferry
