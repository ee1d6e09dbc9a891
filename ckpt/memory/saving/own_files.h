// One rank's part of a save: what it brings, and the files that it writes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ckpt/base/digest.h"
#include "ckpt/core/catalog.h"
#include "ckpt/engine/engine.h"
#include "ckpt/group/wire.h"
#include "ckpt/io/file_system.h"
#include "ckpt/memory/save.h"
#include "ckpt/memory/snapshot_format.h"

namespace ferry {

/// A rank's regions as a source: an entry a tensor, whose chunks are the regions. As checked_bytes;
/// invalid when two of them contradict each other.
Catalog catalog_of(const std::vector<ConstRegion>& regions);

/// What a rank comes with, before anyone has said what of it is to be written.
class OwnFiles {
 public:
  /// The regions' memory is read in write(). As the format's place().
  OwnFiles(const std::vector<ConstRegion>& regions, std::vector<StoredObject> objects,
           const OwnFilesFormat& format, int64_t iteration, int rank);
  OwnFiles(const OwnFiles&) = delete;
  OwnFiles& operator=(const OwnFiles&) = delete;

  /// What rank 0 has to know of the rank: names, dtypes, shapes and boxes of tensors, names of
  /// objects. The same for a later snapshot of the same shapes. GatheredShards reads it.
  std::string description() const;

  /// Lays out what is to be written, and checks it: `chosen` has one character a box, in the order
  /// of the description, '1' where this rank writes it. Once.
  void plan(const std::string& chosen, int files_per_rank);

  /// Writes the files. Returns where everything is, with the digests of all bytes, for
  /// GatheredShards. As run() of the engine.
  std::string write(const FileSystem& file_system, const std::string& folder,
                    const EngineOptions& engine) const;

 private:
  SharedCatalog source_;
  PlacedState placed_;
  int rank_;
  DcpContent content_;
  Plan plan_;
};

}  // namespace ferry
