// What a snapshot becomes on disk.
//
// A save from memory is a reshard whose source is memory: each rank has a catalog of its own
// regions. For a PyTorch distributed checkpoint it has a plan for its own files, and runs it; only
// rank 0 knows what all files hold together, and writes `.metadata`. For formats whose files
// combine the memory of several ranks all have the same plan, of all files, and each runs its part.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/core/placed.h"
#include "ckpt/format/dcp/dcp_metadata_writer.h"

namespace ferry {

/// What one rank gives, before its format is applied: tensors as they are named and shaped, with
/// the boxes that the rank holds of them (a run is several), and objects.
struct OwnState {
  SharedCatalog source;  // the rank's regions; what recipes count in
  PlacedState placed;
  int64_t iteration = 0;
  int rank = 0;
};

/// How snapshots are stored: one of the two classes below. Used by several threads at once.
class SnapshotFormat {
 public:
  virtual ~SnapshotFormat() = default;

 private:
  friend class OwnFilesFormat;
  friend class CommonFilesFormat;
  SnapshotFormat() = default;
};

/// Files of each rank's own, which together are a PyTorch distributed checkpoint.
class OwnFilesFormat : public SnapshotFormat {
 public:
  /// On every rank: what it writes of what it gives, as boxes of stored tensors and recipes in
  /// own.source. A rank writes only what it holds itself. Where several ranks have equal boxes, one
  /// is written.
  virtual PlacedState place(OwnState own) const = 0;

  /// On rank 0, once all is known: what else `.metadata` says, and the small files next to it, in
  /// the order in which they are written. `content` has everyone's names.
  using SmallFiles = std::vector<std::pair<std::string, std::string>>;  // name, content
  virtual SmallFiles complete(DcpContent& content, int64_t iteration) const = 0;
};

/// Files that ranks write together.
class CommonFilesFormat : public SnapshotFormat {
 public:
  /// On every rank the same plan but for its source, of which each chunk is in the memory of the
  /// rank that Shard::rank names. `source` holds the regions of the rank that asks; the plan's also
  /// has what others hold: tensors without chunks.
  virtual PlannedOutput plan(Catalog source, int64_t iteration) const = 0;
};

}  // namespace ferry
