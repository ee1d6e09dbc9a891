#include "ckpt/megatron/fsdp/fsdp_model.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"
#include "ckpt/megatron/model/parameter_names.h"
#include "ckpt/megatron/rank_folders/names.h"

namespace ferry {
namespace {

// Gate and up of one projection, or a tensor that is whole.
struct FsdpWhole {
  std::string name;
  Dims shape;
  DType dtype = DType::f32;
  std::vector<const ModelTensor*> parts;  // one, or gate and up
};

enum class HalfTag : uint8_t { none, gate, up };

HalfTag half_tag_of(std::string_view name) {
  if (name.find(".linear_fc1.") == std::string_view::npos) return HalfTag::none;
  if (name.ends_with("_w")) return HalfTag::gate;
  return name.ends_with("_v") ? HalfTag::up : HalfTag::none;
}

std::vector<FsdpWhole> join_fsdp_halves(const std::vector<ModelTensor>& stored) {
  std::unordered_map<std::string_view, const ModelTensor*> by_name;
  for (const ModelTensor& tensor : stored) {
    if (!by_name.emplace(tensor.name, &tensor).second) {
      fail(ErrorKind::mismatch,
           "tensor {} is there twice: virtual pipeline stages that number their layers alike "
           "cannot be distinguished",
           tensor.name);
    }
  }
  std::vector<FsdpWhole> wholes;
  for (const ModelTensor& tensor : stored) {
    const HalfTag tag = half_tag_of(tensor.name);
    if (tag == HalfTag::none) {
      wholes.push_back({tensor.name, tensor.shape, tensor.dtype, {&tensor}});
      continue;
    }
    const std::string base = tensor.name.substr(0, tensor.name.size() - 2);
    const auto other = by_name.find(base + (tag == HalfTag::gate ? "_v" : "_w"));
    if (other == by_name.end() || by_name.contains(base)) {
      fail(ErrorKind::mismatch, "tensor {} is half of a gated projection: {}", tensor.name,
           other == by_name.end() ? "the other half is missing" : base + " is there as well");
    }
    if (tag == HalfTag::up) continue;  // joined at the gate
    if (other->second->shape != tensor.shape || other->second->dtype != tensor.dtype ||
        tensor.shape.empty()) {
      fail(ErrorKind::mismatch, "tensors {} and {} are two halves, but differ in shape or dtype",
           tensor.name, other->second->name);
    }
    FsdpWhole whole{base, tensor.shape, tensor.dtype, {&tensor, other->second}};
    whole.shape[0] = checked_multiply(whole.shape[0], int64_t{2}, tensor.name);
    wholes.push_back(std::move(whole));
  }
  return wholes;
}

// The names with one number a layer and expert, as all readers of single ranks make them: here
// one rank has all.
std::vector<std::string> fsdp_numbered_names(const std::vector<FsdpWhole>& wholes,
                                             const RunArguments& run, ModuleChoice& modules) {
  std::vector<RankTensor> tensors;
  for (const FsdpWhole& whole : wholes)
    tensors.push_back({whole.name, whole.dtype, whole.shape, {}});
  detect_modules(tensors, modules);
  LegacyNaming naming;
  naming.run = &run;
  naming.local_experts = run.experts;
  const auto views = name_tensors(tensors, naming);
  std::vector<std::string> names;
  for (size_t i = 0; i < views.size(); ++i) {
    const bool none = views[i].empty();
    if (!none && (views[i].size() != 1 || views[i][0].shape != tensors[i].shape)) {
      fail(ErrorKind::unsupported, "tensor {} holds several experts in one, as old releases do",
           tensors[i].name);
    }
    names.push_back(none ? std::string() : views[i][0].name);
  }
  return names;
}

// Every layer that the arguments speak of is there, and no other; of those with experts, and of
// those without, all have the same tensors.
void check_fsdp_layers(const std::vector<std::string>& names, int64_t layers) {
  std::vector<std::set<std::string>> suffixes(static_cast<size_t>(layers));
  for (const std::string& name : names) {
    GlobalName global = global_name(name, true);
    if (global.layer < 0) continue;
    if (global.layer >= layers) {
      fail(ErrorKind::mismatch, "tensor {}: the run's arguments say that there are {} layers", name,
           layers);
    }
    suffixes[static_cast<size_t>(global.layer)].insert(std::move(global.name));
  }
  std::array<const std::set<std::string>*, 2> kinds = {};  // dense, with experts
  for (size_t layer = 0; layer < suffixes.size(); ++layer) {
    const std::set<std::string>& of_layer = suffixes[layer];
    if (of_layer.empty()) {
      fail(ErrorKind::mismatch, "layer {} of the {} in the run's arguments is missing", layer,
           layers);
    }
    const bool mixture = std::ranges::any_of(of_layer, [](const std::string& name) {
      return name.find(".mlp.router.") != std::string::npos;
    });
    const auto*& first = kinds[mixture ? 1 : 0];
    if (!first) first = &of_layer;
    if (*first != of_layer) {
      fail(ErrorKind::mismatch, "layer {} lacks tensors that other layers of its kind have", layer);
    }
  }
}

}  // namespace

FsdpModel::FsdpModel(const std::vector<ModelTensor>& stored, const RunArguments& run)
    : modules_(default_modules(run)), decays_qk_norms_(run.decays_qk_norms) {
  const std::vector<FsdpWhole> wholes = join_fsdp_halves(stored);
  const std::vector<std::string> names = fsdp_numbered_names(wholes, run, modules_);
  check_fsdp_layers(names, run.layers);
  const bool stacked = run.stacks_layers && layers_are_alike(names);
  std::unordered_map<std::string, uint32_t> numbers;
  for (size_t i = 0; i < wholes.size(); ++i) {
    if (names[i].empty()) continue;
    const FsdpWhole& whole = wholes[i];
    GlobalName global = global_name(names[i], stacked, run.layers, run.attention_kinds);
    FsdpPlace place;
    Dims shape = whole.shape;
    if (global.expert_axis) {
      if (global.expert >= run.experts) {
        fail(ErrorKind::mismatch, "tensor {}: the run's arguments say that there are {} experts",
             whole.name, run.experts);
      }
      shape.insert(shape.begin(), run.experts);
      place.at.insert(place.at.begin(), global.expert);
    }
    if (global.layer_axis) {
      shape.insert(shape.begin(), global.stack);
      place.at.insert(place.at.begin(), global.place);
    }
    place.trainable = !is_buffer(global.name);
    const auto [at, is_new] = numbers.emplace(global.name, static_cast<uint32_t>(tensors_.size()));
    if (is_new) tensors_.push_back({global.name, shape, whole.dtype});
    place.tensor = at->second;
    const ModelTensor& tensor = tensors_[place.tensor];
    if (tensor.shape != shape || tensor.dtype != whole.dtype) {
      fail(ErrorKind::mismatch,
           "tensor {} is {} of shape {}; other layers or experts have {} of {}", whole.name,
           torch_name(whole.dtype), to_string(shape), torch_name(tensor.dtype),
           to_string(tensor.shape));
    }
    for (const ModelTensor* part : whole.parts) {
      place.shape = part->shape;
      places_.emplace(part->name, place);
      if (!part->shape.empty()) place.row += part->shape[0];
    }
  }
}

const FsdpPlace* FsdpModel::find(std::string_view stored_name) const {
  const auto found = places_.find(std::string(stored_name));
  return found == places_.end() ? nullptr : &found->second;
}

Chunk FsdpModel::placed(const Chunk& chunk, const FsdpPlace& place) {
  Chunk result = chunk;
  Box& box = result.box;
  if (!box.offset.empty()) box.offset[0] += place.row;
  box.offset.insert(box.offset.begin(), place.at.begin(), place.at.end());
  box.size.insert(box.size.begin(), place.at.size(), 1);
  if (!result.strides.empty()) result.strides.insert(result.strides.begin(), place.at.size(), 1);
  return result;
}

}  // namespace ferry
