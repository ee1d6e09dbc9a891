#include "ckpt/megatron/rank_folders/write/state_names.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "ckpt/megatron/rank_folders/model.h"

namespace ferry {
namespace {

constexpr std::string_view kWordEmbeddings = "embedding.word_embeddings.weight";
constexpr std::string_view kOutput = "output_layer";

class StateNamer {
 public:
  StateNamer(const ModuleChoice& modules, const StageContents& stage, int64_t first_expert)
      : modules_(modules), stage_(stage), first_expert_(first_expert) {}

  /// `name` numbers layers and experts through the model.
  std::string local(std::string name) const {
    if (name == kWordEmbeddings && !stage_.first && stage_.mtp_layers == 0) {
      return fmt::format("{}.weight", kOutput);  // its copy of tied embeddings
    }
    for (const bool mtp : {false, true}) {
      const std::string_view prefix = mtp ? "mtp.layers." : "decoder.layers.";
      if (!name.starts_with(prefix)) continue;
      std::string_view suffix;
      const auto layer = leading_number(std::string_view(name).substr(prefix.size()), &suffix);
      if (!layer) continue;
      const int64_t first = mtp ? stage_.first_mtp : stage_.first_layer;
      return fmt::format("{}{}.{}", prefix, *layer - first, mtp ? in_mtp(suffix) : module(suffix));
    }
    return name;
  }

 private:
  std::string in_mtp(std::string_view suffix) const {
    const auto inner = inside_mtp(suffix);
    if (!inner) return std::string(suffix);
    const std::string_view around = suffix.substr(0, suffix.size() - inner->size());
    const std::string_view numbered = around.substr(around.find('.') + 1);  // of hybrid models
    return std::string("mtp_model_layer.").append(numbered).append(module(*inner));
  }

  std::string module(std::string_view suffix) const {
    const auto found = layer_parameter(suffix);
    if (found && found->row->routed) return of_expert(*found);
    // In torch_dist the convolution is named as the module that it once was.
    constexpr std::string_view kConvolution = "mixer.conv1d.";
    if (found && found->row->name.starts_with(kConvolution)) {
      return std::string("mixer.conv1d_").append(found->row->name.substr(kConvolution.size()));
    }
    // The pieces that torch_dist may store apart are one parameter.
    if (found && found->piece >= 0) return std::string(found->row->name);
    // Latent attention's own norms are named by their modules already (state/norm_names.h).
    const std::string separate = found ? separate_norm_name(suffix, *found) : std::string(suffix);
    const bool is_named = modules_.norms_in_linears || separate.starts_with("self_attention.");
    return is_named ? std::string(suffix) : separate;
  }

  std::string of_expert(const NamedParameter& parameter) const {
    const int64_t number = parameter.expert - first_expert_;
    const std::string_view name = parameter.row->name.substr(kRoutedExperts.size());
    if (modules_.experts == ModuleChoice::Experts::sequential) {
      return fmt::format("mlp.experts.local_experts.{}.{}", number, name);
    }
    return fmt::format("mlp.experts.{}{}", name, number);
  }

  const ModuleChoice& modules_;
  const StageContents& stage_;
  int64_t first_expert_;
};

// "decoder.layers.0.mlp.linear_fc1" of its weight; nothing when it is not a linear module.
std::optional<std::string> linear_module(std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const std::string_view module = name.substr(0, dot);
  const std::string_view last = module.substr(module.rfind('.') + 1);
  if (!last.starts_with("linear_") && last != "eh_proj" && last != "in_proj" &&
      last != "out_proj" && last != kOutput) {
    return std::nullopt;
  }
  return std::string(module);
}

}  // namespace

std::vector<StateDictEntry> state_dict_names(const ModelLayout& layout, const ModuleChoice& modules,
                                             const StageContents& stage, int64_t first_expert,
                                             const std::vector<LocalParameter>& parameters) {
  const StateNamer namer(modules, stage, first_expert);
  std::vector<StateDictEntry> entries;
  std::optional<std::string> open;  // the linear module whose parameters are being listed
  const auto next_module = [&](std::optional<std::string> module) {
    if (open && open != module) entries.push_back({*open + "._extra_state", -1});
    open = std::move(module);
  };
  for (size_t i = 0; i < parameters.size(); ++i) {
    std::string name = namer.local(global_parameter_name(layout, parameters[i]));
    next_module(linear_module(name));
    entries.push_back({std::move(name), static_cast<int64_t>(i)});
  }
  // The output layer is a module even where it borrows the embeddings' weight.
  if (stage.last) next_module(std::string(kOutput));
  next_module(std::nullopt);
  return entries;
}

Dims local_shape(const LocalParameter& parameter) {
  const Dims& size = parameter.shards.front().box.size;
  Dims shape(size.end() - parameter.axes, size.end());
  if (shape.empty()) return shape;
  shape[0] = 0;
  for (const Shard& shard : parameter.shards) {
    shape[0] += shard.box.size[shard.box.size.size() - shape.size()];
  }
  return shape;
}

}  // namespace ferry
