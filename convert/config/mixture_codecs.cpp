// Rows of config.json files that are about experts, their router and MTP layers.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "ckpt/base/checked.h"
#include "convert/config/codecs.h"
#include "convert/config/layer_values.h"
#include "convert/config_value.h"

namespace ferry::codec {
namespace {

using nlohmann::json;
using A = Architecture;

constexpr std::string_view kExperts = "experts (num_experts)";
constexpr std::string_view kSharedExpert = "a shared expert (moe_shared_expert_intermediate_size)";

std::string always_has(std::string_view feature, std::string_view family) {
  return fmt::format("the model lacks {}, {} always has that", feature, family);
}

// What a mixture's router does says nothing about a model of dense layers alone.
void leave_out_of_dense(const A& a, const std::string& key, json& config) {
  if (a.experts == 0) config.erase(key);
}

void require_shared_expert(const A& a, std::string_view family, std::vector<std::string>& reasons) {
  if (a.experts > 0 && a.shared_ffn == 0) reasons.push_back(always_has(kSharedExpert, family));
}

// A token cannot use more groups than there are, where groups are used at all.
void check_groups(const json& config, const A& a, std::vector<std::string>& reasons) {
  const int64_t groups = integer_of(config, "n_group", 1);
  const int64_t chosen = integer_of(config, "topk_group", 1);
  if (a.experts == 0 || groups <= 1 || chosen <= groups) return;
  if (text_of(config, "topk_method", "group_limited") == "greedy") return;
  reasons.push_back(fmt::format("a token uses {} groups (topk_group) where there are {} (n_group)",
                                chosen, groups));
}

}  // namespace

ConfigRow of_mixtures(std::string_view key, json value) {
  const std::string name(key);
  return {.keys = {name},
          .read = [=](json& config, A& a) { leave_out_of_dense(a, name, config); },
          .write =
              [=](const A& a, json& config) {
                if (a.experts > 0) config[name] = value;
              }};
}

ConfigRow experts(std::string_view key) {
  ConfigRow row = plain(key, &A::experts);
  row.unsupported = [](const A& a, std::string_view family, std::vector<std::string>& reasons) {
    if (a.experts == 0) reasons.push_back(always_has(kExperts, family));
  };
  return row;
}

ConfigRow shared_expert(std::string_view key) {
  ConfigRow row = plain(key, &A::shared_ffn);
  row.unsupported = require_shared_expert;
  return row;
}

ConfigRow one_at_zero(std::string_view key, double A::*member) {
  const std::string name(key);
  return {.keys = {name},
          .numbers = {{.key = name, .real = true}},
          .read =
              [=](json& config, A& a) {
                const double factor = number_of(config, name.c_str(), 1);
                a.*member = factor == 1 ? 0 : factor;
                leave_out_of_dense(a, name, config);
              },
          .write =
              [=](const A& a, json& config) {
                if (a.experts > 0) config[name] = a.*member == 0 ? 1.0 : a.*member;
              }};
}

ConfigRow sparse_steps() {
  const auto write = [](const A& a, json& config) {
    json dense = json::array();
    for (int64_t layer = 0; layer < a.layers; ++layer) {
      if (!a.is_moe(layer)) dense.push_back(layer);
    }
    config["decoder_sparse_step"] = 1;
    config["mlp_only_layers"] = std::move(dense);
  };
  return {.keys = {"decoder_sparse_step", "mlp_only_layers"},
          .nullable = {"mlp_only_layers"},
          .numbers = {{.key = "decoder_sparse_step", .least = 1}},
          .read =
              [=](json& config, A& a) {
                const int64_t every =
                    std::max<int64_t>(1, integer_of(config, "decoder_sparse_step", 1));
                json dense = config.value("mlp_only_layers", json());
                if (dense.is_null()) dense = json::array();
                std::set<int64_t> listed;
                for (const json& layer : dense) listed.insert(integer_of(layer, -1));
                if (a.experts > 0) {
                  a.moe_layers = layer_values(a, [&](int64_t layer) {
                    return (layer + 1) % every == 0 && !listed.contains(layer);
                  });
                }
                if (dense.is_array()) write(a, config);  // else it is compared as it is
              },
          .write = write};
}

ConfigRow first_dense_layers(std::string_view experts_key) {
  const std::string experts(experts_key);
  return {.keys = {"first_k_dense_replace"},
          .numbers = {{.key = "first_k_dense_replace"}},
          .read =
              [=](json& config, A& a) {
                const int64_t dense = integer_of(config, "first_k_dense_replace", 0);
                if (dense >= a.layers) {
                  a.experts = 0;
                  config[experts] = 0;
                  config["first_k_dense_replace"] = a.layers;
                }
                if (a.experts > 0) {
                  a.moe_layers = layer_values(a, [&](int64_t layer) { return layer >= dense; });
                }
              },
          .write =
              [](const A& a, json& config) {
                int64_t first = 0;
                while (first < a.layers && !a.is_moe(first)) ++first;
                config["first_k_dense_replace"] = first;
              }};
}

ConfigRow mixture_kinds(int64_t otherwise) {
  constexpr const char *kKinds = "mlp_layer_types", *kDense = "first_k_dense_replace";
  return {.keys = {kKinds},
          .nullable = {kKinds},
          .read =
              [=](json& config, A&) {
                if (config.contains(kDense)) return;
                const json kinds = config.value(kKinds, json());
                int64_t dense = 0;
                if (kinds.is_array()) {
                  for (const json& kind : kinds) {
                    if (kind != "dense") break;
                    ++dense;
                  }
                }
                config[kDense] = kinds.is_array() ? dense : otherwise;
              },
          .write =
              [=](const A& a, json& config) {
                config[kKinds] = layer_values(
                    a, [&](int64_t layer) { return a.is_moe(layer) ? "sparse" : "dense"; });
              }};
}

ConfigRow indexer_layers() {
  constexpr const char *kKinds = "indexer_types", *kPattern = "index_topk_pattern",
                       *kEvery = "index_topk_freq", *kFirst = "index_skip_topk_offset";
  const auto kinds_of = [](const A& a) {
    return json(
        layer_values(a, [&](int64_t layer) { return a.has_indexer(layer) ? "full" : "shared"; }));
  };
  // The first layers that have one, and how far the next one is from the last of them.
  const auto read_kinds = [](const json& kinds, A& a) {
    const auto full = [&](int64_t layer) { return kinds[static_cast<size_t>(layer)] == "full"; };
    int64_t first = 0;
    while (first < a.layers && full(first)) ++first;
    int64_t next = first;
    while (next < a.layers && !full(next)) ++next;
    if (first == 0 || first == a.layers) return;
    a.index_first = first;
    a.index_every = next - first + 1;
  };
  return {.keys = {kKinds, kPattern, kEvery, kFirst},
          .nullable = {kKinds, kPattern},
          .numbers = {{.key = kEvery, .least = 1}, {.key = kFirst}},
          .read =
              [=](json& config, A& a) {
                json kinds = config.value(kKinds, json());
                const json pattern = config.value(kPattern, json());
                if (kinds.is_null() && pattern.is_string()) {
                  kinds = json::array();
                  for (const char c : pattern.get<std::string>()) {
                    kinds.push_back(c == 'F' ? "full" : "shared");
                  }
                } else if (kinds.is_null()) {
                  kinds = pattern;
                }
                config.erase(kPattern);
                if (is_of_layers(kinds, a)) {
                  read_kinds(kinds, a);
                } else {
                  constexpr int64_t kUsualFirst = 2;
                  a.index_every = std::max<int64_t>(1, integer_of(config, kEvery, 1));
                  a.index_first = std::max<int64_t>(1, integer_of(config, kFirst, kUsualFirst));
                }
                if (a.index_every == 1) a.index_first = 1;
                if (!kinds.is_null()) config[kKinds] = kinds;
                // Both say the same twice, in ways that differ where the model ends.
                config.erase(kEvery);
                config.erase(kFirst);
              },
          .write =
              [=](const A& a, json& config) {
                config[kKinds] = kinds_of(a);
                config[kEvery] = a.index_every;
                config[kFirst] = a.index_first;
              }};
}

ConfigRow several_experts() {
  return {
      .unsupported = [](const A& a, std::string_view family, std::vector<std::string>& reasons) {
        if (a.experts == 0 || a.experts_per_token > 1) return;
        reasons.push_back(fmt::format(
            "a token goes to one expert, whose score {} makes 1 and Megatron leaves", family));
      }};
}

ConfigRow shared_expert_count(std::string_view key) {
  const std::string name(key);
  return {.keys = {name},
          .numbers = {{.key = name, .most = kMaxExperts}},
          .read =
              [=](json& config, A& a) {
                if (a.experts == 0) return;
                const int64_t count = integer_of(config, name.c_str(), 0);
                a.shared_ffn = checked_multiply(count, a.expert_ffn, name);
                config[name] = count;
              },
          .write =
              [=](const A& a, json& config) {
                if (a.experts > 0 && a.expert_ffn > 0) config[name] = a.shared_ffn / a.expert_ffn;
              },
          .unsupported = require_shared_expert};
}

ConfigRow router_groups() {
  return {.keys = {"n_group", "topk_group"},
          .numbers = {{.key = "n_group", .least = 1, .most = kMaxExperts},
                      {.key = "topk_group", .least = 1, .most = kMaxExperts}},
          .read =
              [](json& config, A& a) {
                leave_out_of_dense(a, "n_group", config);
                leave_out_of_dense(a, "topk_group", config);
                if (a.experts == 0) return;
                const int64_t groups = integer_of(config, "n_group", 1);
                const int64_t chosen = integer_of(config, "topk_group", 1);
                if (groups > 1 && chosen > 0 && chosen < groups) {
                  a.router_groups = groups;
                  a.router_groups_per_token = chosen;
                } else {
                  config["n_group"] = config["topk_group"] = 1;
                }
              },
          .write =
              [](const A& a, json& config) {
                if (a.experts == 0) return;
                const bool limited = a.limits_groups();
                config["n_group"] = limited ? a.router_groups : 1;
                config["topk_group"] = limited ? a.router_groups_per_token : 1;
              },
          .check = check_groups,
          .unsupported =
              [](const A& a, std::string_view, std::vector<std::string>& reasons) {
                if (a.experts == 0 || a.router_groups <= 0 || a.experts % a.router_groups == 0) {
                  return;
                }
                reasons.push_back(fmt::format("{} experts do not divide into {} groups", a.experts,
                                              a.router_groups));
              }};
}

// Which groups a token may use follows from the other numbers, which "greedy" does not need.
ConfigRow router_method() {
  constexpr std::string_view kGreedy = "greedy", kLimited = "group_limited_greedy";
  const auto write = [=](const A& a, json& config) {
    config["topk_method"] = a.limits_groups() ? kLimited : kGreedy;
  };
  return {.keys = {"topk_method"},
          .nullable = {"n_group", "topk_group"},
          .read =
              [=](json& config, A& a) {
                const std::string method = text_of(config, "topk_method", "");
                if (method == kGreedy) {
                  a.router_groups = a.router_groups_per_token = 0;
                  if (a.experts > 0) config["n_group"] = config["topk_group"] = 1;
                }
                if (method == kGreedy || method == kLimited) write(a, config);
              },
          .write = write,
          .check =
              [=](const json& config, const A& a, std::vector<std::string>& reasons) {
                if (a.experts == 0 || text_of(config, "topk_method", "") != kLimited) return;
                for (const char* key : {"n_group", "topk_group"}) {
                  if (!config.value(key, json()).is_null()) continue;
                  reasons.push_back(
                      fmt::format("{} is missing; topk_method {} needs it", key, kLimited));
                }
              }};
}

ConfigRow renormalises(std::string_view key) {
  const std::string name(key);
  return {.keys = {name},
          .read = [=](json& config,
                      A& a) { a.router_pre_softmax = !boolean_of(config, name.c_str(), false); },
          .write = [=](const A& a, json& config) { config[name] = !a.router_pre_softmax; }};
}

ConfigRow renormalises_chosen(std::string_view key) {
  const std::string name(key);
  return {.keys = {name},
          .read = [=](json& config, A& a) { leave_out_of_dense(a, name, config); },
          .write =
              [=](const A& a, json& config) {
                if (a.experts > 0) config[name] = a.experts_per_token > 1;
              }};
}

ConfigRow router_bias() {
  return {
      .read_tensors =
          [](const HasParameter& has, A& a) {
            a.expert_bias = false;  // where one layer has it, all others must
            for (int64_t layer = 0; layer < a.layers && !a.expert_bias; ++layer) {
              a.expert_bias =
                  a.is_moe(layer) && has("decoder.layers.{layer}.mlp.router.expert_bias", layer);
            }
          },
      .take_from_tensors = [](const A& model, A& read) { read.expert_bias = model.expert_bias; }};
}

ConfigRow one_mtp_layer(std::string_view key) {
  ConfigRow row;
  if (!key.empty()) row = or_null(plain(key, &A::mtp_layers));
  row.read_tensors = [](const HasParameter& has, A& a) {
    a.mtp_layers = has("mtp.layers.{mtp}.eh_proj.weight", a.layers) ? 1 : 0;
  };
  row.take_from_tensors = [](const A& model, A& read) {
    read.mtp_layers = std::min<int64_t>(model.mtp_layers, 1);
  };
  return row;
}

ConfigRow mtp_layers(std::string_view key) {
  ConfigRow row = or_null(plain(key, &A::mtp_layers));
  row.read_tensors = [](const HasParameter& has, A& a) {
    if (!has("mtp.layers.{mtp}.eh_proj.weight", a.layers)) a.mtp_layers = 0;
  };
  return row;
}

}  // namespace ferry::codec
