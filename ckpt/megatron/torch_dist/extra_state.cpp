#include "ckpt/megatron/torch_dist/extra_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/format/torch/archive/torch_archive_writer.h"
#include "ckpt/megatron/model/parameter_names.h"

namespace ferry {
namespace {

constexpr std::string_view kExtraState = "._extra_state/shard_";

// Axes in front of a module's own: layers, experts. One of 1 where there are none.
using ModuleAxes = std::map<std::string, Dims, std::less<>>;

bool has_extra_state(std::string_view module) {
  const std::string_view name = module.substr(module.rfind('.') + 1);
  return name.starts_with("linear_") || name.ends_with("norm") || name.ends_with("_proj");
}

// Axes of the tensor that stack modules: none, the layers, the experts, or both.
Dims stacked_axes(const StateTensor& tensor) {
  constexpr std::string_view kLayers = "layers.";
  const size_t layers = tensor.name.find(kLayers);
  if (layers == std::string::npos) return {};
  std::string_view suffix = std::string_view(tensor.name).substr(layers + kLayers.size());
  size_t axes = leading_number(suffix, &suffix) ? 0 : 1;
  const auto found = layer_parameter(inside_mtp(suffix).value_or(suffix));
  if (found && found->row->routed && found->expert < 0) ++axes;
  if (axes > tensor.shape.size()) return {};
  return Dims(tensor.shape.begin(), tensor.shape.begin() + static_cast<std::ptrdiff_t>(axes));
}

ModuleAxes modules_of_tensors(const RunState& state) {
  constexpr std::string_view kAttention = ".self_attention.";
  ModuleAxes modules;
  for (const StateTensor& tensor : state.tensors) {
    const size_t dot = tensor.name.rfind('.');
    if (tensor.role != Role::model || dot == std::string::npos) continue;
    const std::string module = tensor.name.substr(0, dot);
    if (!module.starts_with("decoder.") && !module.starts_with("mtp.")) continue;
    const Dims axes = stacked_axes(tensor);
    if (has_extra_state(module)) modules.emplace(module, axes);
    // The attention itself has no parameter to be known by.
    if (const size_t at = module.find(kAttention); at != std::string::npos) {
      modules.emplace(module.substr(0, at + kAttention.size()) + "core_attention", axes);
    }
  }
  return modules;
}

std::string shard_name(const Dims& index, const Dims& shape) {
  if (shape.empty()) return "0_1";
  return fmt::format("{}_{}", fmt::join(index, "."), fmt::join(shape, "."));
}

}  // namespace

std::vector<KeptObject> missing_extra_states(const RunState& state) {
  const bool has_some = std::any_of(
      state.objects.begin(), state.objects.end(),
      [](const KeptObject& object) { return object.name.find(kExtraState) != std::string::npos; });
  if (has_some) return {};
  Draft draft;
  const Value list_of_none = draft.list({draft.none()});
  const std::string nothing = write_torch_archive(std::move(draft).finish(list_of_none).value);
  std::vector<KeptObject> objects;
  for (const auto& [module, shape] : modules_of_tensors(state)) {
    const int64_t count = element_count(shape, module);
    Dims index(shape.size(), 0);
    for (int64_t i = 0; i < count; ++i) {
      objects.push_back({module + std::string(kExtraState) + shard_name(index, shape), nothing});
      for (size_t axis = shape.size(); axis-- > 0 && ++index[axis] == shape[axis];) index[axis] = 0;
    }
  }
  return objects;
}

}  // namespace ferry
