// Snapshots as Megatron-LM's torch_dist checkpoints.
#pragma once

#include "ckpt/megatron/state/run_state.h"
#include "ckpt/megatron/torch_dist/torch_dist_writer.h"
#include "ckpt/memory/snapshot.h"

namespace ferry {

/// A planner for snapshots of a Megatron-LM run. `state` has what is no tensor (args, param_groups,
/// scheduler, random number states; the same on all ranks), made by hand or by state_of() of a
/// checkpoint; its own source, tensors and iteration do not count. The tensors are the snapshot's:
/// named, shaped and typed as RunState says, optimizer state included, which is written per
/// parameter (fully_reshardable or plain) or left out. Each rank of the group writes what it gave,
/// so that the files are those of the group's ranks, whatever layout the arguments name.
/// unsupported for dp_reshardable; never compressed; otherwise as plan_torch_dist().
SnapshotPlanner torch_dist_snapshot(RunState state, TorchDistOptions options = {});

}  // namespace ferry
