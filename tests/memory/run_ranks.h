// What each rank of a Megatron-LM run holds in its memory: its parts of the model, and the runs of
// optimizer state that the distributed optimizer gives it.
#pragma once

#include <list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/base/box.h"
#include "ckpt/megatron/model/model_layout.h"
#include "ckpt/megatron/optimizer/buckets/model_buffers.h"
#include "ckpt/megatron/optimizer/optimizer_entries.h"
#include "ckpt/megatron/state/run_state.h"
#include "ckpt/megatron/state/state_parts.h"
#include "ckpt/memory/region.h"

namespace ferry::test {

/// A shard of a named tensor.
struct HeldShard {
  const StateTensor* tensor = nullptr;
  Shard shard;
};

/// How the ranks of a run hold its state in memory.
class RunRanks {
 public:
  /// `state` must outlive it.
  explicit RunRanks(const RunState& state)
      : run_(read_run_arguments(state.args.value)), parts_(state), layout_(parts_.tensors(), run_) {
    for (const StateTensor& tensor : state.tensors) tensors_.emplace(tensor.name, &tensor);
    choice_.modules = state.modules.value_or(default_modules(run_));
    choice_.separate_experts = layout_.has_experts() && experts_are_separate(run_);
  }

  int size() const { return static_cast<int>(run_.world_size); }

  /// Where several ranks hold copies of a parameter, `copies` says whether the optimizer state of
  /// every copy counts (flat buckets have each) or only that of the first.
  std::vector<HeldShard> held_by(int rank, bool copies) const {
    std::vector<HeldShard> held;
    const RankCoordinates place = coordinates(rank);
    for (int64_t chunk = 0; chunk < layout_.pipeline().chunks(); ++chunk) {
      RankCoordinates at = place;
      at.chunk = chunk;
      for (const LocalParameter& parameter : layout_.parameters(at, choice_.modules)) {
        for (const Shard& shard : parameter.shards) add(name_of(shard), shard, held);
      }
    }
    const auto optimizers =
        rank_optimizers(run_, layout_.pipeline().chunks(), choice_.separate_experts);
    for (const RankOptimizer& optimizer : optimizers) add_state(rank, optimizer, copies, held);
    return held;
  }

 private:
  RankCoordinates coordinates(int rank) const {
    const RankGroups dense(run_, false), experts(run_, true);
    const RankGroups::Place at = dense.place_of(rank), of_experts = experts.place_of(rank);
    const RankCoordinates group = experts.rank(at.stage, of_experts.number);
    return {at.number, group.expert_tensor, group.expert, at.stage, 0};
  }

  void add_state(int rank, const RankOptimizer& optimizer, bool copies,
                 std::vector<HeldShard>& held) const {
    const RankGroups groups(run_, optimizer.experts);
    for (const ModelBuffer& buffer :
         optimizer_buffers(layout_, choice_, coordinates(rank), optimizer)) {
      for (const BufferShard& part :
           shards_of_rank(buffer, groups.data_ranks(), groups.place_of(rank).data)) {
        if (!copies && !buffer.parameters[part.parameter].first_copy) continue;
        for (const std::string& kind : parts_.kinds()) {
          add(optimizer_entry_name(kind, name_of(part.shard)), part.shard, held);
        }
      }
    }
  }

  const std::string& name_of(const Shard& shard) const {
    return layout_.tensors()[shard.tensor].name;
  }

  void add(const std::string& name, const Shard& shard, std::vector<HeldShard>& held) const {
    const auto tensor = tensors_.find(name);
    if (tensor != tensors_.end()) held.push_back({tensor->second, shard});
  }

  const RunArguments run_;
  StateParts parts_;
  ModelLayout layout_;
  BufferChoice choice_;
  std::map<std::string, const StateTensor*> tensors_;
};

/// The elements of a shard, out of the bytes of its whole tensor.
inline std::string cut(const std::string& whole, const Dims& shape, int64_t element_bytes,
                       const Shard& shard) {
  const Dims strides = row_major_strides(shape);
  const Dims inside = row_major_strides(shard.box.size);
  std::string bytes(static_cast<size_t>(shard.elements("a shard") * element_bytes), '?');
  for (const FilledBox& filled : filled_boxes(shard)) {
    Dims index(shape.size(), 0);
    for (int64_t left = element_count(filled.box.size, "a box"); left > 0; --left) {
      int64_t from = 0, to = filled.first;
      for (size_t axis = 0; axis < index.size(); ++axis) {
        from += (filled.box.offset[axis] + index[axis]) * strides[axis];
        to += index[axis] * inside[axis];
      }
      const auto width = static_cast<size_t>(element_bytes);
      bytes.replace(static_cast<size_t>(to) * width, width, whole,
                    static_cast<size_t>(from) * width, width);
      for (size_t axis = index.size(); axis-- > 0 && ++index[axis] == filled.box.size[axis];) {
        index[axis] = 0;
      }
    }
  }
  return bytes;
}

}  // namespace ferry::test
