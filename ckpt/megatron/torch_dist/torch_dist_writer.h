// Writes Megatron-LM's distributed checkpoints.
//
// The tensors have Megatron-LM's own keys and the chunks that its save would give them at the
// layout of `state.args`; every rank of that layout has a file. With them come the objects that
// loading requires: common_state (or common.pt), the modules' extra states, random number states by
// pipeline stage and tensor rank, the rerun state of ranks, and of dp_reshardable optimizers the
// sizes of buckets and the parameter groups. metadata.json is written last.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/core/placed.h"
#include "ckpt/megatron/model/target_options.h"
#include "ckpt/megatron/state/run_state.h"

namespace ferry {

/// Plans the folder of one iteration. `state` has been brought to the target's layout (retarget) or
/// made for it. What `options.optimizer` does not need is left out. unsupported when the release
/// cannot load that optimizer form or it is unknown how the ranks hold flat buffers; invalid when
/// it cannot have so many tensor ranks; mismatch when a tensor cannot be split over the target's
/// ranks.
PlannedOutput plan_torch_dist(RunState state, const TorchDistOptions& options);

/// What one rank of a run holds of its state, in boxes, by name of the tensor.
using HeldShards = std::map<std::string, std::vector<Shard>, std::less<>>;

/// What global rank `rank` itself writes of a state in the memory of all ranks: what it holds,
/// whatever layout the arguments name, or for dp_reshardable its part of the buckets of that
/// layout. Recipes of tensors that it has no part of may be empty. Rank 0 adds the objects of the
/// state. As plan_torch_dist(), but that dp_reshardable asks for a state with all tensors of the
/// model, and is invalid when the rank holds optimizer state that its buckets have no place for.
PlacedState place_torch_dist_rank(RunState state, const HeldShards& held, int64_t rank,
                                  const TorchDistOptions& options);

/// The small files next to `.metadata`, in the order in which they are written.
std::vector<std::pair<std::string, std::string>> torch_dist_small_files(
    RunState state, const TorchDistOptions& options);

}  // namespace ferry
