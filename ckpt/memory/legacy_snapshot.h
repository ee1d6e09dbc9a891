// Snapshots as Megatron-LM's legacy checkpoints (`--ckpt-format torch`).
#pragma once

#include <memory>

#include "ckpt/megatron/state/run_state.h"
#include "ckpt/memory/snapshot.h"

namespace ferry {

/// Snapshots of a Megatron-LM run: as torch_dist_format(), of a state that names the tensors of the
/// model and of the optimizer. The group's ranks are those of the layout that the arguments name.
/// The first rank of each model-parallel rank's folder writes its model; a distributed optimizer's
/// flat buffers are written by the ranks that share them, each its part. Otherwise as
/// plan_legacy(). A snapshot without objects. `optimizer`: with its state.
std::shared_ptr<const SnapshotFormat> legacy_format(RunState state, bool optimizer = true);

}  // namespace ferry
