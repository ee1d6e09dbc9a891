// What a rank gives to be saved.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ckpt/memory/region.h"

namespace ferry {

/// Something that is no tensor: a torch.save archive (write_torch_archive) under a name.
struct StoredObject {
  std::string name;
  std::string archive;
};

class SnapshotFormat;  // how snapshots are stored: ckpt/memory/snapshot_format.h

/// Plain PyTorch distributed checkpoint: each name is a key of the state dict; invalid when one has
/// "/shard_" in it, as Megatron-LM's objects do. torch_snapshot.h has Megatron-LM's torch_dist.
std::shared_ptr<const SnapshotFormat> dcp_format();

struct Snapshot {
  int64_t iteration = 0;  // at least 0, the same on all ranks
  /// The parts of tensors that this rank holds. Those of all ranks cover each tensor; an equal part
  /// that several ranks hold (a replica) is written by one of them. Otherwise they do not overlap.
  std::vector<ConstRegion> tensors;
  /// Under names that no other rank gives.
  std::vector<StoredObject> objects;
  std::shared_ptr<const SnapshotFormat> format = dcp_format();
};

}  // namespace ferry
