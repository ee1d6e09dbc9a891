// What a rank gives to be saved, and how what all ranks gave becomes a checkpoint.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ckpt/core/placed.h"
#include "ckpt/memory/region.h"

namespace ferry {

/// Something that is no tensor: a torch.save archive (write_torch_archive) under a name.
struct StoredObject {
  std::string name;
  std::string archive;
};

/// What all ranks gave, as a target without places. Recipes count in `source`, whose chunks are the
/// ranks' memory: every rank has the same description, and the memory of its own only.
struct GatheredState {
  const Catalog* source = nullptr;  // outlives the plan
  std::vector<PlacedTensor> tensors;
  std::vector<PlacedObject> objects;
  int64_t iteration = 0;
  int files_per_rank = 1;
};

/// Lays the state out. A rank writes the files that `file_ranks` of the result says, and may read
/// only the pieces that it gave. Called on every rank, and must give the same everywhere.
using SnapshotPlanner = std::function<PlannedOutput(GatheredState state)>;

/// Plain PyTorch distributed checkpoint: each name is a key of the state dict; invalid when one has
/// "/shard_" in it, as Megatron-LM's objects do. torch_snapshot.h has Megatron-LM's torch_dist.
PlannedOutput plan_dcp_snapshot(GatheredState state);

struct Snapshot {
  int64_t iteration = 0;  // at least 0, the same on all ranks
  /// The parts of tensors that this rank holds. Those of all ranks cover each tensor; an equal part
  /// that several ranks hold (a replica) is written by one of them. Otherwise they do not overlap.
  std::vector<ConstRegion> tensors;
  /// Of names that no other rank gives.
  std::vector<StoredObject> objects;
  SnapshotPlanner planner = plan_dcp_snapshot;
};

}  // namespace ferry
