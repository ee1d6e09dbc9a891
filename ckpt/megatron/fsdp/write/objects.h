// What is next to the tensors in fsdp_dtensor: every leaf of the state dict as an object.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ckpt/core/placed.h"
#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/megatron/fsdp/write/tensors.h"
#include "ckpt/megatron/state/run_state.h"

namespace ferry {

/// Objects, and for each key that is none of a flat state dict its path (planner_data).
class FsdpObjects {
 public:
  /// Args, iteration, scheduler and the like, random number states and, with `optimizer`, the
  /// parameter group of each parameter. mismatch when a parameter has no group.
  FsdpObjects(const RunState& state, const FsdpTensors& tensors, bool optimizer);

  std::vector<PlacedObject> take() { return std::move(objects_); }
  /// A dict of tuples by key, of these objects and of the tensors.
  LoadedValue paths(const FsdpTensors& tensors) &&;

 private:
  void add_args(const RunState& state, bool optimizer);
  void add_groups(const RunState& state, const FsdpTensors& tensors);
  void add_rng(const RunState& state);
  void add(std::vector<Value> path, std::string key, const Value& value, int depth = 0);

  std::vector<PlacedObject> objects_;
  Draft draft_;
  Value paths_;
};

}  // namespace ferry
