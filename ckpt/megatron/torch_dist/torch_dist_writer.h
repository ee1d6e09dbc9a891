// Writes Megatron-LM's distributed checkpoints.
//
// The tensors stand under Megatron-LM's own keys in the chunks that its save would give them at the
// layout of `state.args`; every rank of that layout has a file. Beside them are the objects that
// loading asks for: common_state (or common.pt), the modules' extra states, random number states
// by pipeline stage and tensor rank, the rerun state of ranks, and of dp_reshardable optimizers the
// sizes of buckets and the parameter groups. metadata.json is written last.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ckpt/core/placed.h"
#include "ckpt/megatron/state/run_state.h"
#include "ckpt/megatron/torch_dist/common_state.h"
#include "ckpt/megatron/torch_dist/core_release.h"

namespace ferry {

struct TorchDistOptions {
  CoreRelease release = kNewestCore;  // that is to load it
  ShardedOptimizer optimizer = ShardedOptimizer::fully_reshardable;
  int files_per_rank = 1;
  bool zstd = false;  // the plan is for run_compressed()
};

/// Plans the folder of one iteration. `state` has been brought to the target's layout (retarget) or
/// made for it; its source must outlive the plan. What `options.optimizer` has no use for is left
/// out. unsupported when the release cannot load that optimizer form or nothing tells how the ranks
/// hold flat buffers; invalid when it cannot have so many tensor ranks; mismatch when a tensor
/// cannot be split over the target's ranks.
PlannedOutput plan_torch_dist(RunState state, const TorchDistOptions& options);

/// By name of a tensor: which rank writes which box of it.
using Placement = std::map<std::string, std::vector<PlacedTensor::Piece>, std::less<>>;

/// The same where it is given who writes what, whatever layout the arguments name. `placement` has
/// every tensor of the state; what rank 0 adds to `objects` is the state's own. unsupported for
/// dp_reshardable.
PlannedOutput plan_torch_dist(RunState state, const Placement& placement,
                              std::vector<PlacedObject> objects, const TorchDistOptions& options);

}  // namespace ferry
