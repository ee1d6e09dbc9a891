// Reads tensors of a checkpoint, or parts of them, into memory of the caller.
//
//   const Checkpoint checkpoint = open_checkpoint(posix_file_system(), "runs/a");
//   std::vector<float> bias(4096), rows(1000 * 4096);
//   std::vector<Region> regions{whole_region("bias", DType::f32, {4096}, bias.data())};
//   regions.push_back({"weight", DType::f32, {50000, 4096}, {{{2000, 0}, {1000, 4096}}},
//                      reinterpret_cast<std::byte*>(rows.data())});  // rows 2000 to 2999
//   load(checkpoint, regions);
//
// Whatever the format, and whatever layout saved it: a region may cross the chunks of many ranks.
// Bytes go straight to their places where they are contiguous in the file.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "ckpt/checkpoint.h"
#include "ckpt/engine/engine.h"
#include "ckpt/group/group.h"
#include "ckpt/io/file_system.h"
#include "ckpt/memory/region.h"

namespace ferry {

/// Fills all regions, which must not overlap in memory; the same elements may be asked for many
/// times. Where a region's dtype is not the tensor's, values are converted as convert()
/// (ckpt/base/cast.h) does. Several threads may load from one checkpoint at once.
///
/// not_found for a tensor that is not there; mismatch when it has another shape, or no way leads to
/// the region's dtype; invalid for a region that is none (checked_bytes); busy when the checkpoint
/// was replaced meanwhile; corrupt and io as open_checkpoint. After an error the regions hold
/// anything. Besides the regions it takes `options.memory_bytes`; zstd streams that are too large
/// for them are decoded into files without names of the folder for temporary files (TMPDIR).
void load(const Checkpoint& checkpoint, std::span<const Region> regions,
          const EngineOptions& options = {});

/// Rank 0 opens the checkpoint and gives all ranks of the group what it found; the others touch no
/// file before they read from it. All must see the same file system. What open_checkpoint() throws
/// on rank 0, all throw alike.
///
/// Rank 0's catalog holds the locks that keep other processes from removing the checkpoint, and so
/// must live as long as any rank reads. On the others those, `notes` and `damage` are empty.
Checkpoint open_together(std::shared_ptr<const FileSystem> file_system, const std::string& path,
                         Group& group, const OpenOptions& options = {});

}  // namespace ferry
