#include "convert/import/parameter_order.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <tuple>
#include <utility>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"
#include "ckpt/megatron/model/parameter_names.h"

namespace ferry {
namespace {

// Modules of a layer, in order. '#' is the router and the experts, in either order.
constexpr std::array<std::string_view, 78> kListedModules = {"norm",
                                                             "mixer",
                                                             "mixer.conv1d",
                                                             "mixer.in_proj",
                                                             "mixer.norm",
                                                             "mixer.out_proj",
                                                             "mixer.q_proj",
                                                             "mixer.k_proj",
                                                             "mixer.v_proj",
                                                             "mixer.o_proj",
                                                             "mixer.up_proj",
                                                             "mixer.down_proj",
                                                             "ln_1",
                                                             "linear_attn",
                                                             "linear_attn.conv1d",
                                                             "linear_attn.in_proj_qkvz",
                                                             "linear_attn.in_proj_ba",
                                                             "linear_attn.norm",
                                                             "linear_attn.out_proj",
                                                             "linear_attn.in_proj_qkv",
                                                             "linear_attn.in_proj_z",
                                                             "linear_attn.in_proj_b",
                                                             "linear_attn.in_proj_a",
                                                             "self_attn",
                                                             "self_attn.q_proj",
                                                             "self_attn.q_a_proj",
                                                             "self_attn.q_a_layernorm",
                                                             "self_attn.q_b_proj",
                                                             "self_attn.kv_a_proj_with_mqa",
                                                             "self_attn.kv_a_layernorm",
                                                             "self_attn.kv_b_proj",
                                                             "self_attn.k_proj",
                                                             "self_attn.v_proj",
                                                             "self_attn.o_proj",
                                                             "self_attn.qkv_proj",
                                                             "self_attn.indexer.wq_b",
                                                             "self_attn.indexer.wk",
                                                             "self_attn.indexer.k_norm",
                                                             "self_attn.indexer.weights_proj",
                                                             "self_attn.q_norm",
                                                             "self_attn.k_norm",
                                                             "attn.c_attn",
                                                             "attn.c_proj",
                                                             "ln_2",
                                                             "mlp.gate_proj",
                                                             "mlp.up_proj",
                                                             "mlp.gate_up_proj",
                                                             "mlp.down_proj",
                                                             "mlp.act_fn",
                                                             "mlp.c_fc",
                                                             "mlp.c_proj",
                                                             "#",
                                                             "mlp.shared_experts.gate_proj",
                                                             "mlp.shared_experts.up_proj",
                                                             "mlp.shared_experts.down_proj",
                                                             "mixer.shared_experts.up_proj",
                                                             "mixer.shared_experts.down_proj",
                                                             "mixer.fc1_latent_proj",
                                                             "mixer.fc2_latent_proj",
                                                             "mlp.shared_expert.gate_proj",
                                                             "mlp.shared_expert.up_proj",
                                                             "mlp.shared_expert.down_proj",
                                                             "mlp.shared_expert_gate",
                                                             "attention_layernorm",
                                                             "input_layernorm",
                                                             "feedforward_layernorm",
                                                             "post_attention_layernorm",
                                                             "pre_feedforward_layernorm",
                                                             "post_feedforward_layernorm",
                                                             "per_layer_input_gate",
                                                             "per_layer_projection",
                                                             "post_per_layer_input_norm",
                                                             "router",
                                                             "router.proj",
                                                             "experts",
                                                             "post_feedforward_layernorm_1",
                                                             "post_feedforward_layernorm_2",
                                                             "pre_feedforward_layernorm_2"};
constexpr std::array<std::string_view, 10> kListedOfExperts = {"gate_up_proj",
                                                               "gate_up_proj_bias",
                                                               "down_proj_all",
                                                               "down_proj_bias",
                                                               "gate_proj",
                                                               "up_proj",
                                                               "down_proj",
                                                               "w1",
                                                               "w2",
                                                               "w3"};
constexpr std::array<std::string_view, 13> kListedAttributes = {
    "weight",  "bias",    "sinks", "dt_bias",          "A_log",        "D",
    "alpha_p", "alpha_n", "scale", "per_expert_scale", "gate_up_proj", "down_proj",
    ""};
constexpr std::array<std::string_view, 12> kListedOutside = {"embeddings.weight",
                                                             "embed_tokens.weight",
                                                             "wte.weight",
                                                             "wpe.weight",
                                                             "",  // "": the layers
                                                             "norm.weight",
                                                             "norm_f.weight",
                                                             "ln_f.weight",
                                                             "ln_f.bias",
                                                             "embed_tokens_per_layer.weight",
                                                             "per_layer_model_projection.weight",
                                                             "per_layer_projection_norm.weight"};
constexpr std::string_view kLayerFactor = ".layer_scalar";  // of Gemma 4 alone
constexpr std::array<std::string_view, 8> kUnlistedBuffers = {
    ".rotary_emb.inv_freq", ".e_score_correction_bias",
    ".mlp.expert_bias",     ".act_fn.beta",
    ".act_fn.eps",          ".attn.bias",
    ".attn.masked_bias",    kLayerFactor};
constexpr int kListedLayers = 4;  // among those
static_assert(kListedOutside[kListedLayers].empty());
constexpr std::string_view kListedHead = "lm_head.weight", kListedExperts = "mlp.experts.";
constexpr std::string_view kListedGateUp = "gate_up_proj", kListedDown = "down_proj";

using ListPlace = std::tuple<int, int64_t, int, int, int64_t, int, int>;

template <size_t kCount>
int listed_index(const std::array<std::string_view, kCount>& names, std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  return found == names.end() ? -1 : static_cast<int>(found - names.begin());
}

bool take_listed(std::string_view& name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return false;
  name.remove_prefix(prefix.size());
  return true;
}

// What follows "layers.N.", with experts where newer files have them.
struct ListedInLayer {
  int64_t layer = -1;  // -1: outside
  std::string suffix;  // or the whole name, without the outermost module
};

ListedInLayer listed_in_layer(std::string_view name) {
  if (!take_listed(name, "model.") && !take_listed(name, "backbone.")) {
    take_listed(name, "transformer.");
  }
  ListedInLayer found;
  std::string_view rest = name;
  if (take_listed(rest, "layers.") || take_listed(rest, "h.")) {
    if (const auto number = leading_number(rest, &rest)) {
      found.layer = *number;
      name = rest;
    }
  }
  found.suffix = name;
  // Names of Mixtral and Hy3 on the hub, and of Nemotron.
  constexpr std::pair<std::string_view, std::string_view> kRenamed[] = {
      {"block_sparse_moe.", "mlp."},
      {"mlp.router.gate.", "mlp.gate."},
      {"mlp.shared_mlp.", "mlp.shared_experts."},
      {"mixer.experts.", "mlp.experts."},
      {"mixer.gate.", "mlp.gate."}};
  for (const auto& [hub, runtime] : kRenamed) {
    if (found.suffix.starts_with(hub)) found.suffix.replace(0, hub.size(), runtime);
  }
  return found;
}

std::optional<ListPlace> list_place_of_expert(std::string_view suffix, int64_t layer, int group) {
  if (!take_listed(suffix, kListedExperts)) return std::nullopt;
  int64_t number = -1;
  if (const auto expert = leading_number(suffix, &suffix)) number = *expert;
  const bool all = number < 0;
  const size_t dot = suffix.find('.');
  const std::string_view module = suffix.substr(0, dot);
  if (all != (dot == std::string_view::npos)) return std::nullopt;
  std::string_view of_all = module;
  if (module == kListedDown) of_all = "down_proj_all";
  if (module == "up_proj") of_all = kListedGateUp;  // of experts without a gate
  const int index = listed_index(kListedOfExperts, all ? of_all : module);
  const int attribute =
      dot == std::string_view::npos ? 0 : listed_index(kListedAttributes, suffix.substr(dot + 1));
  if (index < 0 || attribute < 0) return std::nullopt;
  return ListPlace{kListedLayers, layer,    listed_index(kListedModules, "#"), group, number,
                   index,         attribute};
}

std::optional<ListPlace> list_place_of(std::string_view name, const ListingForm& form) {
  if (name == kListedHead)
    return ListPlace{static_cast<int>(kListedOutside.size()), 0, 0, 0, 0, 0, 0};
  const ListedInLayer at = listed_in_layer(name);
  if (at.layer < 0) {
    const int index = listed_index(kListedOutside, at.suffix);
    if (index < 0) return std::nullopt;
    return ListPlace{index, 0, 0, 0, 0, 0, 0};
  }
  for (const std::string_view router : {"mlp.gate.", "mlp.router."}) {
    std::string_view attribute = at.suffix;
    if (!take_listed(attribute, router)) continue;
    const int index = listed_index(kListedAttributes, attribute);
    if (index < 0) return std::nullopt;
    return ListPlace{
        kListedLayers, at.layer, listed_index(kListedModules, "#"), form.router_first ? 0 : 2, 0,
        index,         0};
  }
  if (at.suffix.starts_with(kListedExperts)) return list_place_of_expert(at.suffix, at.layer, 1);
  const size_t dot = at.suffix.rfind('.');
  if (dot == std::string::npos) return std::nullopt;
  for (const int norm : {1, 2}) {
    const bool is_it =
        at.suffix == (norm == 1 ? "self_attn.q_norm.weight" : "self_attn.k_norm.weight");
    if (!form.norms_first || !is_it) continue;
    const int queries = listed_index(kListedModules, "self_attn.q_proj");
    return ListPlace{kListedLayers, at.layer, queries, norm, 0, 0, 0};
  }
  const int module = listed_index(kListedModules, std::string_view(at.suffix).substr(0, dot));
  const int attribute =
      listed_index(kListedAttributes, std::string_view(at.suffix).substr(dot + 1));
  if (module < 0 || attribute < 0) return std::nullopt;
  return ListPlace{kListedLayers, at.layer, module, 0, 0, attribute, 0};
}

// The experts of each layer as one tensor of gate and up, and one of down.
std::vector<CountedParameter> with_fused_experts(std::vector<CountedParameter> stored) {
  struct Fused {
    int64_t experts = 0;
    Dims one;
  };
  const bool has_gates = std::ranges::any_of(stored, [](const CountedParameter& parameter) {
    return parameter.name.find(".gate_proj.") != std::string::npos ||
           parameter.name.find(".w1.") != std::string::npos;
  });
  std::vector<CountedParameter> result;
  std::map<std::string, Fused> fused;
  for (CountedParameter& parameter : stored) {
    const size_t at = parameter.name.find(".experts.");
    std::string_view rest;
    const size_t number = at + std::string_view(".experts.").size();
    if (at == std::string::npos || parameter.shape.size() != 2 ||
        !leading_number(std::string_view(parameter.name).substr(number), &rest)) {
      result.push_back(std::move(parameter));
      continue;
    }
    const std::string_view module = rest.substr(0, rest.find('.'));
    const bool is_up = module == "up_proj" || module == "w3";
    if (is_up && has_gates) continue;  // counted with its gate
    const bool down = module == kListedDown || module == "w2";
    std::string name = parameter.name.substr(0, number);
    Fused& all = fused[name.append(down ? kListedDown : is_up ? module : kListedGateUp)];
    ++all.experts;
    all.one = parameter.shape;
    if (!down && !is_up) all.one[0] = checked_multiply(all.one[0], int64_t{2}, parameter.name);
  }
  for (auto& [name, all] : fused) {
    result.push_back({name, {all.experts, all.one[0], all.one[1]}});
  }
  return result;
}

bool is_unlisted_buffer(std::string_view name) {
  return std::ranges::any_of(kUnlistedBuffers,
                             [&](std::string_view end) { return name.ends_with(end); });
}

}  // namespace

std::vector<CountedParameter> listed_parameters(std::vector<CountedParameter> stored,
                                                ListingForm form, const std::string& path) {
  form.norms_first |= std::ranges::any_of(
      stored, [](const CountedParameter& one) { return one.name.ends_with(kLayerFactor); });
  std::erase_if(stored, [](const CountedParameter& one) { return is_unlisted_buffer(one.name); });
  if (form.fused_experts) stored = with_fused_experts(std::move(stored));
  std::vector<std::pair<ListPlace, CountedParameter>> placed;
  for (CountedParameter& parameter : stored) {
    const auto place = list_place_of(parameter.name, form);
    if (!place) {
      fail(ErrorKind::unsupported,
           "{}: the optimizer counts parameters, and which number tensor {} has is not known", path,
           parameter.name);
    }
    placed.emplace_back(*place, std::move(parameter));
  }
  std::ranges::stable_sort(placed, {}, &std::pair<ListPlace, CountedParameter>::first);
  std::vector<CountedParameter> result;
  for (auto& [place, parameter] : placed) result.push_back(std::move(parameter));
  return result;
}

bool is_decayed_by_name(std::string_view name) {
  std::string lower(name);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const std::string_view part : {"bias", "layernorm", "rmsnorm", "_norm.", ".ln_"}) {
    if (lower.find(part) != std::string::npos) return false;
  }
  return !lower.starts_with("norm.") && !lower.starts_with("ln_") &&
         lower.find(".norm.") == std::string::npos;
}

}  // namespace ferry
