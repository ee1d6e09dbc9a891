#include "convert/config/expressible.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>

#include "ckpt/base/error.h"
#include "ckpt/megatron/model/hybrid_layers.h"
#include "ckpt/megatron/model/parameter_names.h"
#include "convert/config_json.h"

namespace ferry {
namespace {

using A = Architecture;

std::string_view words(RouterScore score) {
  switch (score) {
    case RouterScore::softmax:
      return "softmax";
    case RouterScore::sigmoid:
      return "sigmoid";
    case RouterScore::other:
      break;
  }
  return "unknown";
}

std::string_view words(Positions positions) {
  switch (positions) {
    case Positions::rope:
      return "rotary";
    case Positions::learned:
      return "learned";
    case Positions::none:
      return "none";
    case Positions::other:
      break;
  }
  return "other";
}

std::string size_text(int64_t value) { return value == 0 ? "" : std::to_string(value); }
std::string real_text(double value) { return value == 0 ? "" : fmt::format("{}", value); }
std::string flag_text(bool value) { return value ? "yes" : ""; }

// The layers of which something holds, as a list of numbers.
template <typename Holds>
std::string layers_text(const A& a, Holds holds) {
  std::vector<int64_t> numbers;
  for (int64_t layer = 0; layer < a.layers; ++layer) {
    if (holds(layer)) numbers.push_back(layer);
  }
  constexpr size_t kMostShown = 12;
  const size_t count = numbers.size();
  if (count > kMostShown) numbers.resize(kMostShown);
  return numbers.empty() ? ""
                         : fmt::format("{} ({}{})", count, fmt::join(numbers, ", "),
                                       count > kMostShown ? ", ..." : "");
}

std::string scaling_text(const A& a) {
  switch (a.rope_scaling) {
    case RopeScaling::none:
      return "";
    case RopeScaling::linear:
      return fmt::format("linear, by {}", a.rope_factor);
    case RopeScaling::llama3:
      return fmt::format("Llama 3's, by {}, from {} positions, {} to {}", a.rope_factor,
                         a.rope_original_positions, a.rope_low_freq_factor,
                         a.rope_high_freq_factor);
    case RopeScaling::yarn:
      break;
  }
  return fmt::format("YaRN's, by {}, from {} positions, {} to {}{}, mscale {} and {}",
                     a.rope_factor, a.rope_original_positions, a.rope_beta_fast, a.rope_beta_slow,
                     a.rope_truncates ? "" : " without rounding", a.rope_mscale,
                     a.rope_mscale_all_dim);
}

bool is_rotary(const A& a) { return a.position_kind == Positions::rope; }
bool is_latent(const A& a) { return a.mla; }
bool has_indexers(const A& a) { return a.index_heads > 0; }
bool is_plain(const A& a) { return !a.mla; }
bool has_linear(const A& a) { return a.any_linear(); }
bool has_experts(const A& a) { return a.experts > 0; }
bool scores_by_softmax(const A& a) {
  return a.experts > 0 && a.router_score == RouterScore::softmax;
}
bool has_dense_layers(const A& a) {
  return a.is_hybrid() ? std::ranges::count(a.kinds, LayerKind::mlp) > 0 : !a.all_moe();
}

// Something that a model has, as text; "" where it has none of it.
struct Feature {
  std::string_view name;
  std::string (*of)(const A&);
  bool (*when)(const A&) = nullptr;  // both models must be so; null: always
};

constexpr Feature kFeatures[] = {
    {"number of layers (num_layers)", [](const A& a) { return size_text(a.layers); }},
    {"size of a token (hidden_size)", [](const A& a) { return size_text(a.hidden); }},
    {"number of positions (max_position_embeddings)",
     [](const A& a) { return size_text(a.positions); }},
    {"an output layer tied to the embedding", [](const A& a) { return flag_text(a.tied); }},
    {"kind of norms (normalization)",
     [](const A& a) -> std::string { return a.norm == Norm::rms ? "RMSNorm" : "LayerNorm"; }},
    {"epsilon of norms (layernorm_epsilon)",
     [](const A& a) { return fmt::format("{}", a.norm_eps); }},
    {"norms of what attention and MLP take", [](const A& a) { return flag_text(a.input_norms); }},
    {"norms of what attention and MLP give", [](const A& a) { return flag_text(a.output_norms); }},
    {"embeddings times the root of hidden_size",
     [](const A& a) { return flag_text(a.scales_embedding); }},
    {"norms of a layer as modules of their own",
     [](const A& a) { return flag_text(a.norm_modules); }},
    {"a factor on what a layer gives", [](const A& a) { return flag_text(a.scales_layers); }},
    {"norms of values", [](const A& a) { return flag_text(a.norms_values); }},
    {"attention stored by kind", [](const A& a) { return flag_text(a.attention_by_kind); }},
    {"a cap of logits (final_logit_softcapping)",
     [](const A& a) { return real_text(a.logit_cap); }},
    {"kind of positions (position_embedding_type)",
     [](const A& a) { return std::string(words(a.position_kind)); }},
    {"base of rotary positions (rotary_base)",
     [](const A& a) { return fmt::format("{}", a.rope_theta); }, is_rotary},
    {"base of rotary positions in layers with a window",
     [](const A& a) { return real_text(a.windowed_rope_theta); }, is_rotary},
    {"rotated pairs of a head in layers without a window (full_attention_rope_partial_factor)",
     [](const A& a) {
       return a.full_rotated_pairs == 1 ? "" : fmt::format("{}", a.full_rotated_pairs);
     },
     is_rotary},
    {"scaling of positions", scaling_text, is_rotary},
    {"rotated part of a head (rotary_percent)",
     [](const A& a) { return fmt::format("{}", a.rotary_fraction); }, is_rotary},
    {"positions by pairs (rotary_interleaved)",
     [](const A& a) { return flag_text(a.rope_interleaved && !a.mla); }, is_rotary},
    {"layers without rotary positions (no_rope_freq)",
     [](const A& a) { return layers_text(a, [&](int64_t layer) { return !a.is_rotated(layer); }); },
     is_rotary},
    {"latent attention (multi_latent_attention)", [](const A& a) { return flag_text(a.mla); }},
    {"latent attention by sizes",
     [](const A& a) {
       return fmt::format("{}, {}, {}, {}, {}", a.q_lora_rank, a.kv_lora_rank, a.qk_nope_dim,
                          a.qk_rope_dim, a.v_dim);
     },
     is_latent},
    {"sparse attention by an indexer (experimental_attention_variant)",
     [](const A& a) { return flag_text(a.index_heads > 0); }},
    {"an indexer's sizes (dsa_indexer_n_heads, dsa_indexer_head_dim, dsa_indexer_topk)",
     [](const A& a) {
       return fmt::format("{}, {}, {}", a.index_heads, a.index_dim, a.index_tokens);
     },
     has_indexers},
    {"layers with an indexer (dsa_indexer_topk_freq)",
     [](const A& a) { return layers_text(a, [&](int64_t layer) { return a.has_indexer(layer); }); },
     has_indexers},
    {"positions of an indexer by pairs (dsa_indexer_rope_interleaved)",
     [](const A& a) { return flag_text(a.index_rope_interleaved); }, has_indexers},
    {"number of attention heads (num_attention_heads)",
     [](const A& a) { return size_text(a.heads); }},
    {"grouped queries (num_query_groups)",
     [](const A& a) { return a.groups == a.heads ? "" : size_text(a.groups); }, is_plain},
    {"size of a head (kv_channels)", [](const A& a) { return size_text(a.head_dim); }, is_plain},
    {"size of a head in layers without a window (global_kv_channels)",
     [](const A& a) { return size_text(a.full_head_dim); }},
    {"grouped queries in layers without a window (num_global_query_groups)",
     [](const A& a) { return size_text(a.full_groups); }},
    {"keys for values in layers without a window (attention_k_eq_v)",
     [](const A& a) { return flag_text(a.full_keys_are_values); }},
    {"layers that take keys and values of others (num_kv_shared_layers)",
     [](const A& a) { return size_text(a.kv_taking_layers); }},
    {"MLPs of twice the width in those layers (use_double_wide_mlp)",
     [](const A& a) { return flag_text(a.doubles_ffn); }},
    {"embeddings of tokens for each layer (per_layer_embed_dim)",
     [](const A& a) {
       return a.layer_embedding == 0
                  ? ""
                  : fmt::format("{} of {}", a.layer_embedding, a.layer_embedding_vocab);
     }},
    {"QKV biases (add_qkv_bias)",
     [](const A& a) { return flag_text(a.qkv_bias && !a.linear_bias); }},
    {"biases in all linear layers (add_bias_linear)",
     [](const A& a) { return flag_text(a.linear_bias); }},
    {"query/key norms (qk_layernorm)", [](const A& a) { return flag_text(a.qk_norm); }},
    {"query/key norms over all heads at once",
     [](const A& a) { return flag_text(a.norms_all_heads); }},
    {"another divisor of attention's scores than the root of a head's size (softmax_scale)",
     [](const A& a) { return real_text(a.attention_scalar); }},
    {"a gate on the attention's output (attention_output_gate)",
     [](const A& a) { return flag_text(a.output_gate); }},
    {"layers with linear attention (linear_attention_freq)",
     [](const A& a) { return layers_text(a, [&](int64_t layer) { return a.is_linear(layer); }); }},
    {"linear attention by sizes",
     [](const A& a) {
       return fmt::format("{}, {}, {}, {}, {}", a.linear_key_heads, a.linear_value_heads,
                          a.linear_key_dim, a.linear_value_dim, a.linear_conv);
     },
     has_linear},
    {"a learned score for no key (softmax_type)", [](const A& a) { return flag_text(a.sinks); }},
    {"windowed attention (window_size)", [](const A& a) { return size_text(a.window); }},
    {"layers with windowed attention (window_attn_skip_freq)",
     [](const A& a) { return layers_text(a, [&](int64_t layer) { return a.has_window(layer); }); },
     [](const A& a) { return a.window > 0; }},
    {"width of MLPs (ffn_hidden_size)", [](const A& a) { return size_text(a.ffn); },
     has_dense_layers},
    {"a clamp of gate and up (activation_func_clamp_value)",
     [](const A& a) { return real_text(a.glu_clamp); }},
    {"a number added to up (glu_linear_offset)",
     [](const A& a) { return real_text(a.glu_offset); }},
    {"experts (num_experts)", [](const A& a) { return size_text(a.experts); }},
    {"dense layers among those with experts (moe_layer_freq)",
     [](const A& a) { return layers_text(a, [&](int64_t layer) { return !a.is_moe(layer); }); },
     has_experts},
    {"number of experts for a token (moe_router_topk)",
     [](const A& a) { return size_text(a.experts_per_token); }, has_experts},
    {"width of an expert (moe_ffn_hidden_size)", [](const A& a) { return size_text(a.expert_ffn); },
     has_experts},
    {"a shared expert (moe_shared_expert_intermediate_size)",
     [](const A& a) { return size_text(a.shared_ffn); }, has_experts},
    {"a gate on the shared expert (moe_shared_expert_gate)",
     [](const A& a) { return flag_text(a.shared_gate); }, has_experts},
    {"a bias on the router's scores (moe_router_enable_expert_bias)",
     [](const A& a) { return flag_text(a.expert_bias); }, has_experts},
    {"score function of the router (moe_router_score_function)",
     [](const A& a) { return std::string(words(a.router_score)); }, has_experts},
    // The same question whether a token goes to one expert or to several: its weight is its share
    // of all scores, or of the chosen ones.
    {"norms of a mixture's parts, and scales of its router",
     [](const A& a) { return flag_text(a.norms_parts); }},
    {"scores that are not renormalised over the chosen experts (moe_router_pre_softmax)",
     [](const A& a) { return flag_text(a.router_pre_softmax); }, scores_by_softmax},
    {"a factor on the router's scores (moe_router_topk_scaling_factor)",
     [](const A& a) {
       return a.router_scale == 0 || a.router_scale == 1 ? "" : fmt::format("{}", a.router_scale);
     },
     has_experts},
    {"groups of experts (moe_router_num_groups)",
     [](const A& a) {
       return a.limits_groups()
                  ? fmt::format("{} of {}", a.router_groups_per_token, a.router_groups)
                  : "";
     },
     has_experts},
    {"kinds of layers (hybrid_layer_pattern)",
     [](const A& a) { return a.is_hybrid() ? pattern_of(a).text() : std::string(); }},
    {"Mamba mixers by sizes",
     [](const A& a) {
       return fmt::format("{}, {}, {}, {}", a.mamba_heads, a.mamba_head_dim, a.mamba_groups,
                          a.mamba_state);
     },
     [](const A& a) { return a.any_mamba(); }},
    {"a smaller width of routed experts' inputs (moe_latent_size)",
     [](const A& a) { return size_text(a.expert_width); }, has_experts},
    {"multi-token prediction layers (mtp_num_layers)",
     [](const A& a) { return size_text(a.mtp_layers); }},
};

std::string feature_reason(const Feature& feature, const std::string& model,
                           const std::string& back, const std::string& family) {
  if (back.empty()) return fmt::format("the model has {}, {} has none", feature.name, family);
  if (model.empty()) {
    return fmt::format("the model lacks {}, {} always has that", feature.name, family);
  }
  return fmt::format("the model's {} is {}, {} has {}", feature.name, model, family, back);
}

// The architecture as it comes back from the family's config.json.
A written_and_read(const Family& family, const A& a) {
  nlohmann::json config = members_json(family, a);
  A back = read_architecture(family, config);
  for (const ConfigRow& row : family.config) {
    if (row.take_from_tensors) row.take_from_tensors(a, back);
  }
  return back;
}

// Calls act(feature, its text in a, its text in b) for features that differ.
template <typename Act>
void for_differences(const A& a, const A& b, const Act& act) {
  for (const Feature& feature : kFeatures) {
    if (feature.when != nullptr && !(feature.when(a) && feature.when(b))) continue;
    const std::string of_a = feature.of(a), of_b = feature.of(b);
    if (of_a != of_b) act(feature, of_a, of_b);
  }
}

}  // namespace

std::vector<std::string> different_features(const Architecture& a, const Architecture& b) {
  std::vector<std::string> differences;
  for_differences(a, b,
                  [&](const Feature& feature, const std::string& of_a, const std::string& of_b) {
                    const auto shown = [](const std::string& text) {
                      return text.empty() ? "none" : text.c_str();
                    };
                    differences.push_back(
                        fmt::format("{} is {} and not {}", feature.name, shown(of_a), shown(of_b)));
                  });
  return differences;
}

std::vector<std::string> unsupported_reasons(const Family& family, const Architecture& a) {
  std::vector<std::string> reasons;
  const A back = written_and_read(family, a);
  for_differences(a, back,
                  [&](const Feature& feature, const std::string& model, const std::string& read) {
                    reasons.push_back(feature_reason(feature, model, read, family.name));
                  });
  for (const ConfigRow& row : family.config) {
    if (row.unsupported) row.unsupported(a, family.name, reasons);
  }
  return reasons;
}

}  // namespace ferry
