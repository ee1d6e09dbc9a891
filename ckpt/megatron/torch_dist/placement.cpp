#include "ckpt/megatron/torch_dist/placement.h"

#include <algorithm>
#include <optional>
#include <queue>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"
#include "ckpt/megatron/optimizer/buckets/model_buffers.h"
#include "ckpt/megatron/state/edit.h"

namespace ferry {
namespace {

// Hands out shards among the ranks that hold copies: the next to whoever has least so far.
class Writers {
 public:
  void add(int64_t rank) { loads_.push({0, rank}); }

  int64_t next(int64_t bytes) {
    Load load = loads_.top();
    loads_.pop();
    const int64_t rank = load.rank;
    load.bytes += bytes;
    loads_.push(load);
    return rank;
  }

 private:
  struct Load {
    int64_t bytes, rank;
    bool operator<(const Load& other) const {  // the least is the greatest
      return std::pair(bytes, rank) > std::pair(other.bytes, other.rank);
    }
  };
  std::priority_queue<Load> loads_;
};

using NumbersByName = std::unordered_map<std::string_view, uint32_t>;

class TensorPlacer {
 public:
  TensorPlacer(std::vector<StateTensor> tensors, const ModelLayout& layout,
               const ModuleChoice& modules)
      : layout_(layout),
        modules_(modules),
        dense_(layout.run(), false),
        experts_(layout.run(), true) {
    NumbersByName model;
    for (uint32_t i = 0; i < layout.tensors().size(); ++i) {
      model.emplace(layout.tensors()[i].name, i);
    }
    belonging_.resize(layout.tensors().size());
    placed_.reserve(tensors.size());
    for (StateTensor& tensor : tensors) {
      const auto found = model.find(model_name(tensor.name));
      if (found == model.end() || layout.tensors()[found->second].shape != tensor.shape) {
        fail(ErrorKind::mismatch, "tensor {} of shape {} belongs to no tensor of the model",
             tensor.name, to_string(tensor.shape));
      }
      belonging_[found->second].push_back(static_cast<uint32_t>(placed_.size()));
      placed_.push_back({std::move(tensor), {}});
    }
  }

  std::vector<PlacedTensor> place() {
    check_count();
    for (int64_t stage = 0; stage < layout_.pipeline().stages(); ++stage) {
      place_stage(stage, dense_, false);
      if (layout_.has_experts()) place_stage(stage, experts_, true);
    }
    return std::move(placed_);
  }

 private:
  // Each of them is laid out by itself.
  void check_count() const {
    constexpr int64_t kMostParts = int64_t{1} << 16;
    const int64_t groups = std::max(dense_.count(), layout_.has_experts() ? experts_.count() : 0);
    const int64_t stages = layout_.pipeline().stages();
    if (checked_multiply(groups, stages, "parts of the model") <= kMostParts) return;
    fail(ErrorKind::invalid,
         "{} ranks of {} pipeline stages would hold parts of the model of their own; at most {} "
         "may in all, whatever the number of data ranks",
         groups, stages, kMostParts);
  }

  // The routed experts of a stage, or everything else.
  void place_stage(int64_t stage, const RankGroups& groups, bool routed) {
    for (int64_t group = 0; group < groups.count(); ++group) {
      Writers writers;
      for (int64_t data = 0; data < std::max<int64_t>(groups.data_ranks(), 1); ++data) {
        writers.add(groups.global_rank(stage, group, data));
      }
      place_rank(groups.rank(stage, group), routed, writers);
    }
  }

  void place_rank(RankCoordinates rank, bool routed, Writers& writers) {
    for (; rank.chunk < layout_.pipeline().chunks(); ++rank.chunk) {
      for (const LocalParameter& parameter : layout_.parameters(rank, modules_)) {
        if (parameter.routed_expert != routed || !parameter.first_copy) continue;
        for (const Shard& shard : parameter.shards) place_shard(shard, writers);
      }
    }
  }

  void place_shard(const Shard& shard, Writers& writers) {
    const int64_t elements = element_count(shard.box.size, layout_.tensors()[shard.tensor].name);
    for (uint32_t number : belonging_[shard.tensor]) {
      PlacedTensor& placed = placed_[number];
      placed.shards.push_back(
          {shard.box, writers.next(elements * size_bytes(placed.tensor.dtype))});
    }
  }

  const ModelLayout& layout_;
  const ModuleChoice& modules_;
  const RankGroups dense_, experts_;
  std::vector<PlacedTensor> placed_;
  std::vector<std::vector<uint32_t>> belonging_;  // to each model tensor: itself, its state
};

// Also those that only optimizer state is left of.
std::vector<ModelTensor> model_tensors(const RunState& state) {
  std::vector<ModelTensor> tensors;
  std::unordered_set<std::string_view> names;
  for (const StateTensor& tensor : state.tensors) {
    const std::string_view name = model_name(tensor.name);
    if (names.insert(name).second) {
      tensors.push_back({std::string(name), tensor.shape, tensor.dtype});
    }
  }
  return tensors;
}

}  // namespace

std::vector<PlacedTensor> place_tensors(std::vector<StateTensor> tensors, const ModelLayout& layout,
                                        const ModuleChoice& modules) {
  return TensorPlacer(std::move(tensors), layout, modules).place();
}

std::vector<PlacedTensor> place_state(RunState& state) {
  const RunArguments& run = state.args.run;
  std::optional<ModelLayout> layout;
  try {
    layout.emplace(model_tensors(state), run);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::unsupported) throw;
    state.warnings.push_back(
        fmt::format("{}: the tensors are stored whole, not in the parts of ranks", error.what()));
    return place_whole(std::move(state.tensors), run.world_size);
  }
  return place_tensors(std::move(state.tensors), *layout,
                       state.modules.value_or(default_modules(run)));
}

std::vector<PlacedTensor> place_whole(std::vector<StateTensor> tensors, int64_t ranks) {
  Writers writers;
  for (int64_t rank = 0; rank < std::max<int64_t>(ranks, 1); ++rank) writers.add(rank);
  std::vector<PlacedTensor> placed;
  placed.reserve(tensors.size());
  for (StateTensor& tensor : tensors) {
    const int64_t bytes = element_count(tensor.shape, tensor.name) * size_bytes(tensor.dtype);
    Box all = Box::whole(tensor.shape);
    placed.push_back({std::move(tensor), {{std::move(all), writers.next(bytes)}}});
  }
  return placed;
}

}  // namespace ferry
