// Gemma 4's language models (transformers/models/gemma4): layers without a window have heads of
// another size, may use keys for values and turn only some pairs of a head. Values are normed
// without weights, scores are not divided, and each layer has a factor. In dense models the last
// layers may take keys and values of earlier ones, and tokens may have an embedding for each layer;
// in others routed experts stand next to each MLP, the shared expert of Megatron's mixture.
#include <fmt/format.h>

#include <string>
#include <utility>

#include "convert/config/layer_values.h"
#include "convert/config_value.h"
#include "convert/families/list.h"
#include "convert/families/shared.h"

namespace ferry {
namespace {

using nlohmann::json;
using A = Architecture;

constexpr const char *kFullHeadDim = "global_head_dim", *kFullGroups = "num_global_key_value_heads",
                     *kByLayer = "per_layer_config", *kHeadDim = "head_dim",
                     *kGroups = "num_key_value_heads", *kRopeByKind = "rope_parameters",
                     *kFullKind = "full_attention", *kSlidingKind = "sliding_attention",
                     *kEnablesExperts = "enable_moe_block";

bool takes_kv(const A& a, int64_t layer) { return a.takes_kv(layer); }
bool has_keys(const A& a, int64_t layer) { return !a.takes_kv(layer); }
bool has_values(const A& a, int64_t layer) {
  return !a.takes_kv(layer) && !a.keys_are_values(layer);
}
bool has_keys_for_values(const A& a, int64_t layer) {
  return !a.takes_kv(layer) && a.keys_are_values(layer);
}

bool has_no_mixture(const A& a, int64_t layer) { return !a.is_moe(layer); }
bool has_mixture(const A& a, int64_t layer) { return a.is_moe(layer); }

std::vector<Rule> layer_embeddings() {
  return {{"per_layer_embedding.weight", {"model.embed_tokens_per_layer.weight"}},
          {"per_layer_model_proj.weight", {"model.per_layer_model_projection.weight"}},
          {"per_layer_proj_norm.weight", {"model.per_layer_projection_norm.weight"}}};
}

// Megatron Bridge's attention always has rows of keys and values, and a norm of keys.
std::vector<Rule> layers() {
  constexpr std::string_view kQkv = "decoder.layers.{layer}.self_attention.linear_qkv.weight";
  constexpr std::string_view kKeyNorm = "decoder.layers.{layer}.self_attention.k_layernorm.weight";
  constexpr std::string_view kQueries = "model.layers.{layer}.self_attn.q_proj.weight";
  constexpr std::string_view kKeys = "model.layers.{layer}.self_attn.k_proj.weight";
  constexpr std::string_view kValues = "model.layers.{layer}.self_attn.v_proj.weight";
  std::vector<Rule> rules = {
      {"decoder.layers.{layer}.layer_scalar", {"model.layers.{layer}.layer_scalar"}},
      {"decoder.layers.{layer}.input_layernorm.weight",
       {"model.layers.{layer}.input_layernorm.weight"}},
      {"decoder.layers.{layer}.self_attention.linear_qkv.layer_norm_weight",
       {"model.layers.{layer}.input_layernorm.weight"}},
      {.megatron = kQkv,
       .hugging_face = {kQueries, kKeys, kValues},
       .transform = Transform::qkv,
       .when = has_values},
      {.megatron = kQkv,
       .hugging_face = {kQueries, kKeys, kKeys},
       .transform = Transform::qkv,
       .when = has_keys_for_values},
      {.megatron = kQkv,
       .hugging_face = {kQueries},
       .transform = Transform::queries,
       .when = takes_kv},
      {"decoder.layers.{layer}.self_attention.q_layernorm.weight",
       {"model.layers.{layer}.self_attn.q_norm.weight"}},
      {.megatron = kKeyNorm,
       .hugging_face = {"model.layers.{layer}.self_attn.k_norm.weight"},
       .when = has_keys},
      {.megatron = kKeyNorm, .hugging_face = {}, .transform = Transform::unused, .when = takes_kv},
      {"decoder.layers.{layer}.self_attention.linear_proj.weight",
       {"model.layers.{layer}.self_attn.o_proj.weight"}},
      {"decoder.layers.{layer}.post_self_attn_layernorm.weight",
       {"model.layers.{layer}.post_attention_layernorm.weight"}},
      {"decoder.layers.{layer}.self_attention.linear_proj.post_layernorm.weight",
       {"model.layers.{layer}.post_attention_layernorm.weight"}},
      {.megatron = "decoder.layers.{layer}.pre_mlp_layernorm.weight",
       .hugging_face = {"model.layers.{layer}.pre_feedforward_layernorm.weight"},
       .when = has_no_mixture},
      {"decoder.layers.{layer}.post_mlp_layernorm.weight",
       {"model.layers.{layer}.post_feedforward_layernorm.weight"}},
      {"decoder.layers.{layer}.per_layer_input_gate.weight",
       {"model.layers.{layer}.per_layer_input_gate.weight"}},
      {"decoder.layers.{layer}.per_layer_projection.weight",
       {"model.layers.{layer}.per_layer_projection.weight"}},
      {"decoder.layers.{layer}.post_per_layer_input_norm.weight",
       {"model.layers.{layer}.post_per_layer_input_norm.weight"}},
  };
  for (Rule& rule : shared::dense_mlp()) {
    if (!rule.megatron.ends_with("norm_weight")) rules.push_back(std::move(rule));
  }
  return rules;
}

std::vector<Rule> layers_with_experts() {
  return {
      {.megatron = "decoder.layers.{layer}.pre_mlp_layernorm.weight",
       .hugging_face = {"model.layers.{layer}.pre_feedforward_layernorm_2.weight"},
       .when = has_mixture},
      {"decoder.layers.{layer}.mlp.router.weight", {"model.layers.{layer}.router.proj.weight"}},
      {"decoder.layers.{layer}.mlp.router.per_expert_scale",
       {"model.layers.{layer}.router.per_expert_scale"}},
      {"decoder.layers.{layer}.mlp.router.scale", {"model.layers.{layer}.router.scale"}},
      {"decoder.layers.{layer}.mlp.experts.experts.{expert}.linear_fc1.weight",
       {"model.layers.{layer}.experts.gate_up_proj"},
       Transform::gate_up},
      {"decoder.layers.{layer}.mlp.experts.experts.{expert}.linear_fc2.weight",
       {"model.layers.{layer}.experts.down_proj"}},
      {"decoder.layers.{layer}.mlp.shared_experts.linear_fc1.weight",
       {"model.layers.{layer}.mlp.gate_proj.weight", "model.layers.{layer}.mlp.up_proj.weight"},
       Transform::gate_up},
      {"decoder.layers.{layer}.mlp.shared_experts.linear_fc2.weight",
       {"model.layers.{layer}.mlp.down_proj.weight"}},
      {"decoder.layers.{layer}.mlp.post_moe_layernorm.weight",
       {"model.layers.{layer}.post_feedforward_layernorm_2.weight"}},
      {"decoder.layers.{layer}.mlp.post_shared_expert_layernorm.weight",
       {"model.layers.{layer}.post_feedforward_layernorm_1.weight"}},
      {"decoder.layers.{layer}.pre_shared_expert_layernorm.weight",
       {"model.layers.{layer}.pre_feedforward_layernorm.weight"}},
      {"decoder.layers.{layer}.post_ffn_layernorm.weight",
       {"model.layers.{layer}.post_feedforward_layernorm.weight"}},
  };
}

// A size that may be 0.
ConfigRow count(std::string_view key, int64_t A::*member) {
  ConfigRow row = codec::plain(key, member);
  row.size = nullptr;
  for (ConfigNumber& number : row.numbers) number.least = 0;
  return row;
}

bool has_full_layers(const A& a) {
  for (int64_t layer = 0; layer < a.layers; ++layer) {
    if (!a.has_window(layer)) return true;
  }
  return false;
}

// What per_layer_config says of layers without a window: what differs from the others.
json sizes_by_layer(const A& a) {
  json of_layer = json::object(), all = json::object();
  if (a.full_head_dim > 0) of_layer[kHeadDim] = a.full_head_dim;
  if (a.full_groups > 0) of_layer[kGroups] = a.full_groups;
  for (int64_t layer = 0; layer < a.layers && !of_layer.empty(); ++layer) {
    if (!a.has_window(layer)) all[std::to_string(layer)] = of_layer;
  }
  return all;
}

// The same without what a file says though it is as in all layers.
json without_repetition(json by_layer, const A& a) {
  json all = json::object();
  for (auto& [layer, sizes] : by_layer.items()) {
    if (sizes.is_object() && sizes.value(kHeadDim, json()) == a.head_dim) sizes.erase(kHeadDim);
    if (sizes.is_object() && sizes.value(kGroups, json()) == a.groups) sizes.erase(kGroups);
    if (!sizes.is_object() || !sizes.empty()) all[layer] = std::move(sizes);
  }
  return all;
}

void read_sizes(json& config, A& a) {
  const json by_layer = config.value(kByLayer, json());
  const bool is_listed = by_layer.is_object();
  json full = json::object();
  if (is_listed) {
    for (int64_t layer = a.layers - 1; layer >= 0; --layer) {
      if (!a.has_window(layer)) full = by_layer.value(std::to_string(layer), json::object());
    }
  } else if (has_full_layers(a)) {
    full[kHeadDim] = integer_of(config, kFullHeadDim, 512);
    if (a.full_keys_are_values) full[kGroups] = integer_of(config, kFullGroups, a.groups);
  }
  if (!full.is_object()) full = json::object();
  const int64_t head_dim = integer_of(full, kHeadDim, a.head_dim);
  const int64_t groups = integer_of(full, kGroups, a.groups);
  a.full_head_dim = head_dim == a.head_dim ? 0 : head_dim;
  a.full_groups = groups == a.groups ? 0 : groups;
  config[kByLayer] = is_listed ? without_repetition(by_layer, a) : sizes_by_layer(a);
  config.erase(kFullHeadDim);
  config.erase(kFullGroups);
}

// transformers takes per_layer_config where it is there; releases before it know the others alone.
ConfigRow sizes_by_kind() {
  return {.keys = {kByLayer, kFullHeadDim, kFullGroups},
          .nullable = {kByLayer, kFullGroups},
          .numbers = {{.key = kFullHeadDim, .least = 1, .most = kMaxHeads},
                      {.key = kFullGroups, .least = 1, .most = kMaxHeads}},
          .read = read_sizes,
          .write = [](const A& a, json& config) { config[kByLayer] = sizes_by_layer(a); }};
}

// What a kind of layer may say of its positions; anything else would turn them otherwise.
void check_kind_of_positions(const json& rope, const char* kind, const char* type,
                             std::vector<std::string>& reasons) {
  const json of_kind = rope.is_object() ? rope.value(kind, json()) : json();
  if (!of_kind.is_object() || of_kind.value("rope_type", json()) != type ||
      !of_kind.value("rope_theta", json()).is_number()) {
    return reasons.push_back(
        fmt::format("rope_parameters of {} are {}, not a rope_theta and the rope_type {}", kind,
                    shown(of_kind), type));
  }
  for (const auto& [key, value] : of_kind.items()) {
    const bool is_part = key == "partial_rotary_factor" && kind == std::string_view(kFullKind);
    const bool is_share = value.is_number() && value >= 0 && value <= 1;
    if (key == "rope_type" || key == "rope_theta" || value == 1 || (is_part && is_share)) continue;
    reasons.push_back(fmt::format("{} of the positions of {} is {}", key, kind, shown(value)));
  }
}

void check_positions(const json& config, const A& a, std::vector<std::string>& reasons) {
  const json rope = config.value(kRopeByKind, json());
  if (rope.is_null()) return;
  if (has_full_layers(a)) check_kind_of_positions(rope, kFullKind, "proportional", reasons);
  if (a.window > 0) check_kind_of_positions(rope, kSlidingKind, "default", reasons);
}

// The class knows no other positions than these.
ConfigRow positions_by_kind() {
  return {.keys = {kRopeByKind},
          .nullable = {kRopeByKind},
          .read =
              [](json& config, A& a) {
                const json rope = config.value(kRopeByKind, json());
                const auto of = [&](const char* kind) {
                  const json found = rope.is_object() ? rope.value(kind, json()) : json();
                  return found.is_object() ? found : json::object();
                };
                a.rope_theta = number_of(of(kFullKind), "rope_theta", 1e6);
                a.full_rotated_pairs = number_of(of(kFullKind), "partial_rotary_factor",
                                                 of(kFullKind).empty() ? 0.25 : 1);
                a.windowed_rope_theta =
                    a.window > 0 ? number_of(of(kSlidingKind), "rope_theta", 1e4) : 0;
                if (rope.is_null()) config.erase(kRopeByKind);
              },
          .write =
              [](const A& a, json& config) {
                const double windowed = a.windowed_rope_theta > 0 ? a.windowed_rope_theta : 1e4;
                config[kRopeByKind] = {
                    {kFullKind,
                     {{"partial_rotary_factor", a.full_rotated_pairs},
                      {"rope_theta", a.rope_theta},
                      {"rope_type", "proportional"}}},
                    {kSlidingKind, {{"rope_theta", windowed}, {"rope_type", "default"}}}};
              },
          .check = check_positions};
}

ConfigRow logit_cap() {
  constexpr const char* kCap = "final_logit_softcapping";
  return {
      .keys = {kCap},
      .nullable = {kCap},
      .numbers = {{.key = kCap, .real = true}},
      .read = [](json& config, A& a) { a.logit_cap = number_of(config, kCap, 0); },
      .write = [](const A& a,
                  json& config) { config[kCap] = a.logit_cap != 0 ? json(a.logit_cap) : json(); }};
}

// Text is causal where pictures alone are not.
ConfigRow causal_text() {
  constexpr const char* kBoth = "use_bidirectional_attention";
  ConfigRow row = codec::or_null(codec::constant(kBoth, nullptr));
  row.read = [](json& config, A&) {
    if (text_of(config, kBoth, "") == "vision") config[kBoth] = nullptr;
  };
  return row;
}

// All layers are mixtures, or none is. The shared expert is as wide as a dense MLP would be.
ConfigRow enables_experts() {
  ConfigRow row = codec::shared_expert("intermediate_size");
  row.keys.emplace_back(kEnablesExperts);
  row.read = [](json& config, A& a) {
    a.norms_parts = a.router_pre_softmax = boolean_of(config, kEnablesExperts, false);
    a.norm_modules = !a.norms_parts;
    a.shared_ffn = a.norms_parts ? a.ffn : 0;
    config[kEnablesExperts] = a.norms_parts;
  };
  row.write = [](const A& a, json& config) {
    config[kEnablesExperts] = a.experts > 0;
    if (a.experts > 0) config["intermediate_size"] = a.shared_ffn;
  };
  return row;
}

// A size of experts, which other models may give as well.
ConfigRow experts_size(std::string_view key, int64_t A::*member) {
  return codec::only_where([](const A& a) { return a.norms_parts; },
                           codec::or_null(codec::plain(key, member)));
}

bool has_keys_of_kind(const A& a, bool windowed) {
  for (int64_t layer = 0; layer < a.layers - a.kv_taking_layers; ++layer) {
    if (a.has_window(layer) == windowed) return true;
  }
  return false;
}

// Layers take keys and values of the last one of their kind that has some.
ConfigRow shared_keys() {
  ConfigRow row = count("num_kv_shared_layers", &A::kv_taking_layers);
  const auto check = [](const A& a, std::vector<std::string>& reasons) {
    if (a.has_window(a.layers - 1)) {
      reasons.push_back("the last layer has a window, which the class does not have there");
    }
    for (int64_t layer = 0; layer < a.layers; ++layer) {
      if (!a.takes_kv(layer) || has_keys_of_kind(a, a.has_window(layer))) continue;
      return reasons.push_back(fmt::format(
          "layer {} takes keys and values of a layer of its kind, of which none has any", layer));
    }
  };
  row.check = [=](const json&, const A& a, std::vector<std::string>& reasons) {
    check(a, reasons);
  };
  row.unsupported = [=](const A& a, std::string_view, std::vector<std::string>& reasons) {
    check(a, reasons);
  };
  return row;
}

void warn_of_norms(const A& a, std::vector<std::string>& warnings) {
  constexpr double kFixed = 1e-6;
  shared::warn_of_output_norms(a, warnings);
  if (a.norm_eps == kFixed || a.norms_parts) return;
  warnings.push_back(fmt::format(
      "the norm of values has the epsilon {} in Megatron Bridge, whatever the others' is, which is "
      "{} in this model: it computes slightly other values",
      kFixed, a.norm_eps));
}

std::vector<ConfigRow> layer_rows() {
  return {codec::implied(&A::qk_norm, true),          codec::implied(&A::output_norms, true),
          codec::implied(&A::scales_embedding, true), codec::implied(&A::scales_layers, true),
          codec::implied(&A::norms_values, true),     codec::implied(&A::attention_by_kind, true),
          codec::implied(&A::attention_scalar, 1.0)};
}

}  // namespace

Family gemma4_family() {
  return {
      .name = "gemma4_text",
      .class_name = "Gemma4ForCausalLM",
      .rules = shared::join({shared::embedding(), layer_embeddings(), layers(),
                             layers_with_experts(), shared::head()}),
      .config = shared::join(
          {shared::llama_config_without_rope(std::nullopt),
           layer_rows(),
           {codec::plain(kHeadDim, &A::head_dim), codec::constant("attention_bias", false),
            codec::activation({Activation::tanh_geglu}, "hidden_activation"),
            codec::window_by_kind(6), codec::plain("attention_k_eq_v", &A::full_keys_are_values),
            sizes_by_kind(), shared_keys(), codec::plain("use_double_wide_mlp", &A::doubles_ffn),
            positions_by_kind(), logit_cap(), causal_text(),
            count("vocab_size_per_layer_input", &A::layer_embedding_vocab),
            count("hidden_size_per_layer_input", &A::layer_embedding), enables_experts(),
            experts_size("num_experts", &A::experts),
            experts_size("top_k_experts", &A::experts_per_token),
            experts_size("moe_intermediate_size", &A::expert_ffn)}}),
      .defaults = R"({"num_key_value_heads": 4, "head_dim": 256, "sliding_window": 512,
                      "hidden_activation": "gelu_pytorch_tanh", "attention_k_eq_v": false,
                      "num_kv_shared_layers": 0, "use_double_wide_mlp": false,
                      "vocab_size_per_layer_input": 262144, "hidden_size_per_layer_input": 256,
                      "rms_norm_eps": 1e-6, "tie_word_embeddings": true,
                      "enable_moe_block": false})",
      .differences = warn_of_norms};
}

}  // namespace ferry
