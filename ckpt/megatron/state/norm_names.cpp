#include "ckpt/megatron/state/norm_names.h"

#include <optional>
#include <utility>

#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/megatron/model/parameter_names.h"
#include "ckpt/megatron/model/run_arguments.h"
#include "ckpt/megatron/state/edit.h"

namespace ferry {
namespace {

constexpr std::string_view kNormBeforeAttention = "input_layernorm.",
                           kNormBeforeMlp = "pre_mlp_layernorm.";

// "decoder.layers.3." or, of stacked layers, "decoder.layers.", and what follows it.
struct NormLayer {
  std::string_view layer, suffix;
};

std::optional<NormLayer> norm_layer(std::string_view name) {
  for (const std::string_view prefix : {"decoder.layers.", "mtp.layers."}) {
    if (!name.starts_with(prefix)) continue;
    std::string_view suffix = name.substr(prefix.size());
    leading_number(suffix, &suffix);
    suffix = inside_mtp(suffix).value_or(suffix);
    return NormLayer{name.substr(0, name.size() - suffix.size()), suffix};
  }
  return std::nullopt;
}

}  // namespace

NormNames::NormNames(const std::vector<std::string_view>& names, bool transformer_engine)
    : transformer_engine_(transformer_engine) {
  for (const std::string_view name : names) {
    const auto part = norm_layer(name);
    if (!part) continue;
    if (part->suffix.starts_with("self_attention.core_attention.indexer.")) has_indexers_ = true;
    if (part->suffix.starts_with("post_self_attn_layernorm.")) has_norm_modules_ = true;
    if (part->suffix.starts_with("mlp.router.")) with_experts_.emplace(part->layer);
    if (part->suffix.starts_with("self_attention.linear_kv_up_proj.")) latent_.emplace(part->layer);
  }
}

std::string NormNames::of(std::string_view name) const {
  const auto part = norm_layer(name);
  if (!part || has_norm_modules_) return std::string(name);
  const bool latent = latent_.contains(part->layer);
  const auto is_separate = [&](std::string_view norm) -> std::optional<bool> {
    if (norm.starts_with(kNormBeforeMlp)) {
      return transformer_engine_ ? with_experts_.contains(part->layer) : latent;
    }
    const bool is_of_attention = norm.starts_with(kNormBeforeAttention);
    if (!latent || is_of_attention) return std::nullopt;
    return has_indexers_ || !transformer_engine_;  // an indexer takes what the norm gives, too
  };
  for (const Block& block : layer_blocks()) {
    for (const ParameterRow& row : block.parameters) {
      if (row.separate_norm.empty()) continue;
      if (part->suffix != row.name && part->suffix != row.separate_norm) continue;
      if (const auto separate = is_separate(row.separate_norm)) {
        return std::string(part->layer).append(*separate ? row.separate_norm : row.name);
      }
    }
  }
  return std::string(name);
}

void name_norms(RunState& state, bool transformer_engine) {
  std::vector<std::string_view> names;
  for (const StateTensor& tensor : state.tensors) {
    if (tensor.role == Role::model) names.push_back(tensor.name);
  }
  const NormNames norms(names, transformer_engine);
  rename_tensors(state, [&](std::string_view name) { return norms.of(name); });
}

void name_norms_by_modules(RunState& state) {
  const ModuleChoice modules = state.modules.value_or(default_modules(state.args.run));
  name_norms(state, modules.norms_in_linears);
}

void choose_modules(RunState& state, bool transformer_engine) {
  name_norms(state, transformer_engine);
  const bool before = state.args.run.transformer_engine;
  if (before != transformer_engine) state.modules.reset();
  Draft draft;
  const Value args = draft.copy(state.args.value);
  draft.put(args, "transformer_impl",
            draft.string(transformer_engine ? "transformer_engine" : "local"));
  state.args = std::move(draft).finish(args);
}

void name_norms(std::vector<ModelTensor>& tensors, bool transformer_engine) {
  std::vector<std::string_view> names;
  for (const ModelTensor& tensor : tensors) names.push_back(tensor.name);
  const NormNames norms(names, transformer_engine);
  for (ModelTensor& tensor : tensors) tensor.name = norms.of(tensor.name);
}

}  // namespace ferry
