#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "ckpt/base/checked.h"
#include "convert/config_value.h"
#include "convert/families/shared.h"

namespace ferry::shared {

using A = Architecture;

std::vector<ConfigField> config_fields() {
  return {
      {"vocab_size", &A::vocab},
      {"hidden_size", &A::hidden},
      {"intermediate_size", &A::ffn},
      {"num_hidden_layers", &A::layers},
      {"num_attention_heads", &A::heads},
      {"num_key_value_heads", &A::groups},
      {"max_position_embeddings", &A::positions},
      {"rms_norm_eps", &A::norm_eps},
      {"initializer_range", &A::init_std},
      {"attention_dropout", &A::attention_dropout},
      {"tie_word_embeddings", &A::tied},
  };
}

std::vector<ConfigField> latent_fields() {
  return {
      {"kv_lora_rank", &A::kv_lora_rank},
      {"qk_nope_head_dim", &A::qk_nope_dim},
      {"qk_rope_head_dim", &A::qk_rope_dim},
      {"v_head_dim", &A::v_dim},
  };
}

std::vector<ConfigNumber> head_dim_number() { return {{"head_dim", 1, kMaxHeads}}; }

std::vector<ConfigNumber> window_number() { return {{"sliding_window", 1}}; }

std::vector<ConfigNumber> layer_window_numbers() {
  constexpr std::string_view kUsed = "use_sliding_window";
  return {{.key = "sliding_window", .least = 1, .with = kUsed},
          {.key = "max_window_layers", .with = kUsed}};
}

std::vector<ConfigNumber> dense_layer_number() { return {{"decoder_sparse_step", 1}}; }

std::vector<ConfigNumber> latent_numbers() {
  return {{"q_lora_rank", 1},
          {"first_k_dense_replace"},
          {"n_shared_experts", 0, kMaxExperts},
          {"n_group", 0, kMaxExperts},
          {"topk_group", 0, kMaxExperts},
          {.key = "routed_scaling_factor", .real = true}};
}

void object_router(const Architecture& a, std::string_view family, bool renormalises,
                   std::vector<std::string>& reasons) {
  if (a.experts == 0) return;
  // Of one expert the weight is its share of all, or 1: the same question.
  if (a.router_pre_softmax == renormalises && a.router_score == RouterScore::softmax) {
    reasons.push_back(fmt::format(
        "moe_router_pre_softmax is {}, but {} {} over the experts it chose", a.router_pre_softmax,
        family, renormalises ? "always renormalises" : "never renormalises"));
  }
}

void object_partial_window(const Architecture& a, std::string_view family,
                           std::vector<std::string>& reasons) {
  const bool partial = std::find(a.windowed_layers.begin(), a.windowed_layers.end(), false) !=
                       a.windowed_layers.end();
  if (a.window > 0 && partial) {
    reasons.push_back(fmt::format(
        "some layers have no window (window_attn_skip_freq), in {} all have the same", family));
  }
}

void object_uneven_heads(const Architecture& a, std::string_view family,
                         std::vector<std::string>& reasons) {
  if (a.heads > 0 && a.hidden % a.heads != 0) {
    reasons.push_back(fmt::format("hidden_size {} is not a multiple of {} heads, as {} demands",
                                  a.hidden, a.heads, family));
  }
}

void write_head_dim_if_unusual(const Architecture& a, nlohmann::json& config) {
  if (a.head_dim * a.heads != a.hidden) config["head_dim"] = a.head_dim;
}

void read_head_dim(nlohmann::json& config, Architecture& a) {
  a.head_dim = integer_of(config, "head_dim", 0);
  if (a.head_dim == 0 && a.heads > 0) a.head_dim = a.hidden / a.heads;
  if (checked_multiply(a.head_dim, a.heads, "head_dim") == a.hidden) config.erase("head_dim");
}

void write_window(const Architecture& a, nlohmann::json& config) {
  config["sliding_window"] = a.window > 0 ? nlohmann::json(a.window) : nlohmann::json();
}

void read_window(nlohmann::json& config, Architecture& a) {
  a.window = integer_of(config, "sliding_window", 0);
}

void write_layer_windows(const Architecture& a, nlohmann::json& config) {
  config["use_sliding_window"] = a.window > 0;
  if (a.window == 0) {
    config["sliding_window"] = nullptr;
    config["max_window_layers"] = a.layers;
    return;
  }
  config["sliding_window"] = a.window;
  nlohmann::json types = nlohmann::json::array();
  int64_t first = a.layers;
  for (int64_t layer = 0; layer < a.layers; ++layer) {
    const bool windowed =
        a.windowed_layers.empty() || a.windowed_layers[static_cast<size_t>(layer)];
    if (windowed && first == a.layers) first = layer;
    types.push_back(windowed ? "sliding_attention" : "full_attention");
  }
  config["max_window_layers"] = first;
  config["layer_types"] = std::move(types);
}

// Layers from max_window_layers on have the window, unless layer_types says which.
void read_layer_windows(nlohmann::json& config, Architecture& a) {
  const bool used = boolean_of(config, "use_sliding_window", false);
  a.window = used ? integer_of(config, "sliding_window", 0) : 0;
  if (a.window > 0) {
    const int64_t first = integer_of(config, "max_window_layers", 0);
    const nlohmann::json types = config.value("layer_types", nlohmann::json());
    const bool listed = types.is_array() && static_cast<int64_t>(types.size()) == a.layers;
    for (int64_t layer = 0; layer < a.layers; ++layer) {
      a.windowed_layers.push_back(listed ? types[static_cast<size_t>(layer)] == "sliding_attention"
                                         : layer >= first);
    }
    const auto windowed = std::count(a.windowed_layers.begin(), a.windowed_layers.end(), true);
    if (windowed == 0) a.window = 0;
    if (windowed == 0 || windowed == a.layers) a.windowed_layers.clear();
  }
  // What is said of windows that no layer has means nothing.
  config.erase("max_window_layers");
  if (a.window == 0) {
    config["use_sliding_window"] = false;
    config["sliding_window"] = nullptr;
    config.erase("layer_types");
  }
}

void write_dense_layers(const Architecture& a, nlohmann::json& config) {
  nlohmann::json dense = nlohmann::json::array();
  for (int64_t layer = 0; layer < a.layers; ++layer) {
    if (!a.is_moe(layer)) dense.push_back(layer);
  }
  config["decoder_sparse_step"] = 1;
  config["mlp_only_layers"] = std::move(dense);
}

void read_dense_layers(nlohmann::json& config, Architecture& a) {
  const int64_t every = std::max<int64_t>(1, integer_of(config, "decoder_sparse_step", 1));
  const nlohmann::json dense = config.value("mlp_only_layers", nlohmann::json::array());
  std::set<int64_t> listed;
  for (const nlohmann::json& layer : dense) listed.insert(integer_of(layer, -1));
  for (int64_t layer = 0; a.experts > 0 && layer < a.layers; ++layer) {
    a.moe_layers.push_back((layer + 1) % every == 0 && !listed.contains(layer));
  }
  if (dense.is_array()) write_dense_layers(a, config);  // else it is compared as it is
}

bool limits_groups(const Architecture& a) {
  return a.experts > 0 && a.router_groups > 0 && a.router_groups_per_token > 0 &&
         a.router_groups_per_token < a.router_groups;
}

void warn_of_latent(const Architecture& a, const GroupRank& rank,
                    std::vector<std::string>& warnings) {
  if (a.norm_eps != 1e-6) {
    warnings.push_back(fmt::format(
        "layernorm_epsilon is {}, but transformers fixes that of q_a_layernorm and kv_a_layernorm "
        "at 1e-06: logits will differ slightly",
        a.norm_eps));
  }
  if (!limits_groups(a)) return;
  const int64_t scores = a.experts_per_token / a.router_groups_per_token;
  if (scores == rank.scores) return;
  warnings.push_back(fmt::format(
      "Megatron ranks groups of experts by the sum of their {} best scores, {} by {}: some tokens "
      "will go to other experts",
      scores, rank.family, rank.words));
}

void write_latent(const Architecture& a, nlohmann::json& config) {
  config["q_lora_rank"] = a.q_lora_rank > 0 ? nlohmann::json(a.q_lora_rank) : nlohmann::json();
  config["num_key_value_heads"] = a.heads;
  config["attention_bias"] = false;
  config["first_k_dense_replace"] =
      a.experts == 0
          ? a.layers
          : std::find(a.moe_layers.begin(), a.moe_layers.end(), true) - a.moe_layers.begin();
  config["moe_layer_freq"] = 1;
  if (a.experts == 0) return;
  config["n_shared_experts"] = a.shared_ffn / a.expert_ffn;
  config["routed_scaling_factor"] = a.router_scale == 0 ? 1.0 : a.router_scale;
  const bool limited = limits_groups(a);
  config["n_group"] = limited ? a.router_groups : 1;
  config["topk_group"] = limited ? a.router_groups_per_token : 1;
}

void read_latent(nlohmann::json& config, Architecture& a) {
  a.q_lora_rank = integer_of(config, "q_lora_rank", 0);
  a.head_dim = a.heads > 0 ? std::max<int64_t>(1, a.hidden / a.heads) : 0;
  a.qk_norm = true;
  const int64_t dense = integer_of(config, "first_k_dense_replace", 0);
  if (dense >= a.layers) {
    a.experts = 0;
    config["n_routed_experts"] = 0;
    config["first_k_dense_replace"] = a.layers;
  }
  if (a.experts == 0) return;
  for (int64_t layer = 0; layer < a.layers; ++layer) a.moe_layers.push_back(layer >= dense);
  a.router_pre_softmax = true;
  const int64_t shared = integer_of(config, "n_shared_experts", 0);
  a.shared_ffn = checked_multiply(shared, a.expert_ffn, "n_shared_experts");
  config["n_shared_experts"] = shared;
  const double scale = number_of(config, "routed_scaling_factor", 1);
  a.router_scale = scale == 1 ? 0 : scale;
  const int64_t groups = integer_of(config, "n_group", 1);
  const int64_t chosen = integer_of(config, "topk_group", 1);
  const bool limited = groups > 1 && chosen > 0 && chosen < groups &&
                       text_of(config, "topk_method", "group_limited") != "greedy";
  if (limited) {
    a.router_groups = groups;
    a.router_groups_per_token = chosen;
  } else {
    config["n_group"] = config["topk_group"] = 1;
  }
}

void object_latent(const Architecture& a, std::string_view family,
                   std::vector<std::string>& reasons) {
  if (a.mla && !a.qk_norm) {
    reasons.push_back(fmt::format(
        "qk_layernorm is false, but {} always has norms on the compressed queries and keys",
        family));
  }
  if (a.experts == 0) return;
  const auto first = std::find(a.moe_layers.begin(), a.moe_layers.end(), true);
  if (std::find(first, a.moe_layers.end(), false) != a.moe_layers.end()) {
    reasons.push_back(fmt::format(
        "dense layers come after layers with experts (moe_layer_freq), in {} they come first",
        family));
  }
  if (a.router_groups > 0 && a.experts % a.router_groups != 0) {
    reasons.push_back(
        fmt::format("{} experts do not divide into {} groups", a.experts, a.router_groups));
  }
  if (a.expert_ffn <= 0 || a.shared_ffn % a.expert_ffn != 0) {
    reasons.push_back(fmt::format(
        "the shared expert's width {} is not a multiple of an expert's, {}, as {} has it",
        a.shared_ffn, a.expert_ffn, family));
  }
}

}  // namespace ferry::shared
