#include "convert/config/codecs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"
#include "convert/config/activation_names.h"
#include "convert/config/layer_values.h"
#include "convert/config_value.h"

namespace ferry::codec {
namespace {

using nlohmann::json;
using A = Architecture;

ConfigNumber size_number(std::string_view key, int64_t A::*member) {
  struct Range {
    int64_t A::*member;
    int64_t least, most;
  };
  constexpr Range kRanges[] = {
      {&A::layers, 1, kMaxLayers},
      {&A::mtp_layers, 0, kMaxLayers},
      {&A::heads, 1, kMaxHeads},
      {&A::groups, 1, kMaxHeads},
      {&A::head_dim, 1, kMaxHeads},
      {&A::experts, 0, kMaxExperts},
      {&A::expert_ffn, 0, kMaxModelSize},
      {&A::experts_per_token, 0, kMaxExperts},
      {&A::shared_ffn, 0, kMaxModelSize},
      {&A::linear_key_heads, 1, kMaxHeads},
      {&A::linear_value_heads, 1, kMaxHeads},
      {&A::linear_key_dim, 1, kMaxHeads},
      {&A::linear_value_dim, 1, kMaxHeads},
      {&A::linear_conv, 1, kMaxHeads},
  };
  const auto* found = std::ranges::find(kRanges, member, &Range::member);
  if (found == std::end(kRanges)) return {.key = std::string(key), .least = 1};
  return {.key = std::string(key), .least = found->least, .most = found->most};
}

json or_null(int64_t value) { return value > 0 ? json(value) : json(); }

// A value for each layer that is a whole number: true and false are none, and compare equal to no
// number.
bool is_numbers_of_layers(const json& list, const A& a) {
  return is_of_layers(list, a) &&
         std::ranges::all_of(list, [](const json& value) { return value.is_number_integer(); });
}

void check_rotated_part(const json& config, const A& a, std::vector<std::string>& reasons) {
  const json scaling = rope_scaling_of(config);
  const auto part = scaling.find("partial_rotary_factor");
  if (part != scaling.end() && part->is_null()) {
    reasons.push_back("partial_rotary_factor in the parameters of positions is null, not a number");
  }
  if (a.rotary_fraction >= 0 && a.rotary_fraction <= 1) return;
  reasons.push_back(
      fmt::format("partial_rotary_factor is {}, not a number from 0 to 1", a.rotary_fraction));
}

// Empty where it holds for no layer.
std::vector<bool> or_none(std::vector<bool> layers) {
  if (std::ranges::count(layers, true) == 0) layers.clear();
  return layers;
}

}  // namespace

ConfigRow plain(std::string_view key, int64_t A::*member) {
  const std::string name(key);
  return {
      .keys = {name},
      .numbers = {size_number(key, member)},
      .size = member,
      .read = [=](json& config, A& a) { a.*member = integer_of(config, name.c_str(), a.*member); },
      .write = [=](const A& a, json& config) { config[name] = a.*member; }};
}

ConfigRow plain(std::string_view key, double A::*member) {
  const std::string name(key);
  return {
      .keys = {name},
      .numbers = {{.key = name, .real = true, .epsilon = member == &A::norm_eps}},
      .read = [=](json& config, A& a) { a.*member = number_of(config, name.c_str(), a.*member); },
      .write = [=](const A& a, json& config) { config[name] = a.*member; }};
}

ConfigRow plain(std::string_view key, bool A::*member) {
  const std::string name(key);
  return {
      .keys = {name},
      .flag = member,
      .read = [=](json& config, A& a) { a.*member = boolean_of(config, name.c_str(), a.*member); },
      .write = [=](const A& a, json& config) { config[name] = a.*member; }};
}

ConfigRow or_null(ConfigRow row) {
  row.nullable = row.keys;
  return row;
}

ConfigRow null_at_zero(std::string_view key, int64_t A::*member) {
  const std::string name(key);
  return {.keys = {name},
          .nullable = {name},
          .numbers = {{.key = name, .least = 1}},
          .read = [=](json& config, A& a) { a.*member = integer_of(config, name.c_str(), 0); },
          .write = [=](const A& a, json& config) { config[name] = or_null(a.*member); }};
}

ConfigRow only_where(bool (*has)(const A&), ConfigRow row) {
  row.read = [=, read = row.read, keys = row.keys](json& config, A& a) {
    if (has(a)) {
      if (read) read(config, a);
      return;
    }
    for (const std::string& key : keys) config.erase(key);
  };
  row.write = [=, write = row.write](const A& a, json& config) {
    if (has(a)) write(a, config);
  };
  return row;
}

ConfigRow constant(std::string_view key, json value) {
  const std::string name(key);
  return {.keys = {name}, .write = [=](const A&, json& config) { config[name] = value; }};
}

ConfigRow indifferent(std::string_view key, json value) {
  ConfigRow row = constant(key, std::move(value));
  row.nullable = row.keys;
  row.read = [name = std::string(key)](json& config, A&) { config.erase(name); };
  return row;
}

ConfigRow activation(std::vector<Activation> supported, std::string_view key) {
  const std::string name(key);
  return {.keys = {name},
          .read =
              [=](json& config, A& a) {
                a.activation = activation_of(text_of(config, name.c_str(), ""));
                if (a.activation == Activation::gelu_tanh &&
                    std::ranges::count(supported, Activation::tanh_geglu) > 0) {
                  a.activation = Activation::tanh_geglu;  // of the same name
                }
                if (a.activation != Activation::other) config[name] = name_of(a.activation);
              },
          .write = [=](const A& a, json& config) { config[name] = name_of(a.activation); },
          .unsupported =
              [=](const A& a, std::string_view family, std::vector<std::string>& reasons) {
                if (std::ranges::count(supported, a.activation) > 0) return;
                reasons.push_back(fmt::format("the model's activation is {}, {} has {}",
                                              in_words(a.activation), family,
                                              in_words(supported.front())));
              }};
}

ConfigRow attention_scalar() {
  const std::string name = "query_pre_attn_scalar";
  return {.keys = {name},
          .numbers = {{.key = name, .least = 1}},
          .read =
              [=](json& config, A& a) {
                const int64_t scalar = integer_of(config, name.c_str(), a.head_dim);
                a.attention_scalar = scalar == a.head_dim ? 0 : static_cast<double>(scalar);
              },
          .write =
              [=](const A& a, json& config) {
                config[name] =
                    a.attention_scalar == 0 ? a.head_dim : std::llround(a.attention_scalar);
              }};
}

// Megatron-LM's quick GEGLU has 1.702 as a constant.
ConfigRow clamped_glu() {
  return {.keys = {"swiglu_limit", "swiglu_alpha", "hidden_act"},
          .numbers = {{.key = "swiglu_limit", .real = true}},
          .read =
              [](json& config, A& a) {
                a.activation = Activation::quick_geglu;
                a.glu_offset = 1;
                a.glu_clamp = number_of(config, "swiglu_limit", 0);
              },
          .write =
              [](const A& a, json& config) {
                config["swiglu_limit"] = a.glu_clamp;
                config["swiglu_alpha"] = 1.702;
                config["hidden_act"] = "silu";
              },
          .unsupported =
              [](const A& a, std::string_view family, std::vector<std::string>& reasons) {
                if (a.activation != Activation::quick_geglu) {
                  reasons.push_back(fmt::format("the model's activation is {}, {} has {}",
                                                in_words(a.activation), family,
                                                in_words(Activation::quick_geglu)));
                }
                if (a.glu_clamp > 0) return;
                reasons.push_back(
                    fmt::format("the model lacks a clamp of gate and up "
                                "(activation_func_clamp_value), {} always has that",
                                family));
              }};
}

ConfigRow partial_rotary() {
  const std::string name = "partial_rotary_factor";
  return {.keys = {name},
          .numbers = {{.key = name, .real = true}},
          .read =
              [=](json& config, A& a) {
                a.rotary_fraction = number_of(rope_scaling_of(config), name.c_str(),
                                              number_of(config, name.c_str(), 1));
                config[name] = a.rotary_fraction;
              },
          .write =
              [=](const A& a, json& config) {
                config[name] = a.rotary_fraction;
                for (const char* parameters : {"rope_parameters", "rope_scaling"}) {
                  if (config.contains(parameters)) config[parameters][name] = a.rotary_fraction;
                }
              },
          .check = check_rotated_part};
}

ConfigRow zero_of_rope(std::string_view key, std::string_view meaning) {
  const std::string name(key), words(meaning);
  return {
      .write =
          [=](const A& a, json& config) {
            for (const char* parameters : {"rope_parameters", "rope_scaling"}) {
              if (!config.contains(parameters)) continue;
              config[parameters][name] = 0.0;
              // What it is computed with, whatever the scaling.
              config[parameters].emplace("original_max_position_embeddings", a.positions);
            }
          },
      .check =
          [=](const json& config, const A&, std::vector<std::string>& reasons) {
            const json value = rope_scaling_of(config).value(name, json(0));
            if (value == 0) return;
            reasons.push_back(fmt::format(
                "{} of rope_parameters is {}: {}, which Megatron has no argument for; for a "
                "model that is to be without, {} leaves it out",
                name, value.dump(), words, option("ignored_members", "rope_parameters." + name)));
          }};
}

ConfigRow unscaled_positions() {
  return {
      .unsupported = [](const A& a, std::string_view family, std::vector<std::string>& reasons) {
        if (a.rope_scaling == RopeScaling::none) return;
        reasons.push_back(fmt::format("the model has scaled positions, {} has none", family));
      }};
}

ConfigRow no_rope_layers() {
  const std::string list = "no_rope_layers", interval = "no_rope_layer_interval";
  const auto rotated = [](const A& a) {
    return json(layer_values(a, [&](int64_t layer) { return a.is_rotated(layer) ? 1 : 0; }));
  };
  return {.keys = {list, interval},
          .nullable = {list},
          .numbers = {{.key = interval, .least = 1}},
          .read =
              [=](json& config, A& a) {
                const json layers = config.value(list, json());
                const bool is_listed = is_numbers_of_layers(layers, a);
                const int64_t every = std::max<int64_t>(1, integer_of(config, interval.c_str(), 1));
                a.unrotated_layers = or_none(layer_values(a, [&](int64_t layer) {
                  return is_listed ? layers[static_cast<size_t>(layer)] == 0
                                   : (layer + 1) % every == 0;
                }));
                if (layers.is_null() || is_listed) config[list] = rotated(a);
                config.erase(interval);
              },
          .write = [=](const A& a, json& config) { config[list] = rotated(a); }};
}

ConfigRow linear_layers() {
  const std::string list = "layer_types", interval = "full_attention_interval";
  return {.keys = {list, interval},
          .nullable = {list},
          .numbers = {{.key = interval, .least = 1}},
          .read =
              [=](json& config, A& a) {
                const json layers = config.value(list, json());
                const bool is_listed = is_of_layers(layers, a);
                const int64_t every = std::max<int64_t>(1, integer_of(config, interval.c_str(), 4));
                a.linear_layers = or_none(layer_values(a, [&](int64_t layer) {
                  return is_listed ? layers[static_cast<size_t>(layer)] == "linear_attention"
                                   : (layer + 1) % every != 0;
                }));
                if (layers.is_null()) config[list] = attention_types(a);
                config.erase(interval);
              },
          .write = [=](const A& a, json& config) { config[list] = attention_types(a); },
          .unsupported =
              [](const A& a, std::string_view family, std::vector<std::string>& reasons) {
                if (!a.any_linear() || a.linear_key_heads < 1 ||
                    a.linear_value_heads % a.linear_key_heads == 0) {
                  return;
                }
                reasons.push_back(fmt::format(
                    "{} value heads of linear attention do not divide into {} key heads, as {} "
                    "demands",
                    a.linear_value_heads, a.linear_key_heads, family));
              }};
}

ConfigRow unusual_head_dim() {
  return {.keys = {"head_dim"},
          .nullable = {"head_dim"},
          .numbers = {{.key = "head_dim", .least = 1, .most = kMaxHeads}},
          .read =
              [](json& config, A& a) {
                a.head_dim = integer_of(config, "head_dim", 0);
                if (a.head_dim == 0 && a.heads > 0) a.head_dim = a.hidden / a.heads;
                const int64_t width = checked_multiply(a.head_dim, a.heads, "head_dim");
                if (width == a.hidden) config.erase("head_dim");
              },
          .write =
              [](const A& a, json& config) {
                if (a.head_dim * a.heads != a.hidden) config["head_dim"] = a.head_dim;
              }};
}

ConfigRow qkv_bias(std::string_view key) {
  const std::string name(key);
  return {.keys = {name},
          .read = [=](json& config, A& a) { a.qkv_bias = boolean_of(config, name.c_str(), false); },
          .write = [=](const A& a, json& config) { config[name] = a.qkv_bias || a.linear_bias; }};
}

ConfigRow heads_for_groups() {
  return {.keys = {"num_key_value_heads"},
          .nullable = {"num_key_value_heads"},
          .write = [](const A& a, json& config) { config["num_key_value_heads"] = a.heads; }};
}

ConfigRow window() { return null_at_zero("sliding_window", &A::window); }

// Layers from max_window_layers on have the window, unless layer_types says which.
ConfigRow layer_windows() {
  const auto first_windowed = [](const A& a) {
    int64_t first = 0;
    while (first < a.layers && !a.has_window(first)) ++first;
    return first;
  };
  constexpr std::string_view kUsed = "use_sliding_window";
  return {.keys = {"use_sliding_window", "sliding_window", "max_window_layers", "layer_types"},
          .nullable = {"sliding_window", "layer_types"},
          .numbers = {{.key = "sliding_window", .least = 1, .with = kUsed},
                      {.key = "max_window_layers", .with = kUsed}},
          .read =
              [](json& config, A& a) {
                const bool used = boolean_of(config, "use_sliding_window", false);
                a.window = used ? integer_of(config, "sliding_window", 0) : 0;
                a.windowed_layers.clear();
                if (a.window > 0) {
                  const int64_t first = integer_of(config, "max_window_layers", 0);
                  const json types = config.value("layer_types", json());
                  const bool is_listed = is_of_layers(types, a);
                  a.windowed_layers = or_none(layer_values(a, [&](int64_t layer) {
                    return is_listed ? types[static_cast<size_t>(layer)] == "sliding_attention"
                                     : layer >= first;
                  }));
                  if (a.windowed_layers.empty()) a.window = 0;
                  if (std::ranges::count(a.windowed_layers, false) == 0) a.windowed_layers.clear();
                }
                // What is said of windows that no layer has does not matter.
                config.erase("max_window_layers");
                if (a.window > 0) return;
                config["use_sliding_window"] = false;
                config["sliding_window"] = nullptr;
                config.erase("layer_types");
              },
          .write =
              [=](const A& a, json& config) {
                config["use_sliding_window"] = a.window > 0;
                config["sliding_window"] = or_null(a.window);
                config["max_window_layers"] = first_windowed(a);
                if (a.window > 0) config["layer_types"] = attention_types(a);
              }};
}

ConfigRow window_by_kind(int64_t full_every, std::string_view interval) {
  constexpr const char *kWindow = "sliding_window", *kKinds = "layer_types";
  std::vector<std::string> keys = {kWindow, kKinds};
  if (!interval.empty()) keys.emplace_back(interval);
  return {.keys = keys,
          .nullable = keys,
          .numbers = {{.key = kWindow, .least = 1}},
          .read =
              [=, interval = std::string(interval)](json& config, A& a) {
                const json kinds = config.value(kKinds, json());
                const bool is_listed = is_of_layers(kinds, a);
                int64_t every = full_every;
                if (!interval.empty()) {
                  every = std::max<int64_t>(1, integer_of(config, interval.c_str(), full_every));
                  config.erase(interval);
                }
                a.windowed_layers = or_none(layer_values(a, [&](int64_t layer) {
                  return is_listed ? kinds[static_cast<size_t>(layer)] == "sliding_attention"
                                   : (layer + 1) % every != 0;
                }));
                a.window = a.windowed_layers.empty() ? 0 : integer_of(config, kWindow, 0);
                if (a.window == 0) config.erase(kWindow);
                if (a.window == 0 || std::ranges::count(a.windowed_layers, false) == 0) {
                  a.windowed_layers.clear();
                }
              },
          .write =
              [=](const A& a, json& config) {
                // The class makes masks of all kinds, whether a layer has them or not.
                config[kWindow] = a.window > 0 ? a.window : a.positions;
                config[kKinds] = attention_types(a);
              }};
}

// The class has the window in all layers, whatever max_window_layers says.
ConfigRow optional_window() {
  ConfigRow row = layer_windows();
  row.read = [read = row.read](json& config, A& a) {
    config.erase("max_window_layers");
    read(config, a);
  };
  row.write = [](const A& a, json& config) {
    config["use_sliding_window"] = a.window > 0;
    config["sliding_window"] = or_null(a.window);
  };
  return row;
}

ConfigRow even_heads() {
  return {
      .unsupported = [](const A& a, std::string_view family, std::vector<std::string>& reasons) {
        if (a.heads <= 0 || a.hidden % a.heads == 0) return;
        reasons.push_back(fmt::format("hidden_size {} is not a multiple of {} heads, as {} demands",
                                      a.hidden, a.heads, family));
      }};
}

}  // namespace ferry::codec
