// Runs a plan whose items are compressed on their way to the files.
#pragma once

#include <string>
#include <vector>

#include "ckpt/base/digest.h"
#include "ckpt/core/plan.h"
#include "ckpt/engine/engine.h"
#include "ckpt/io/file_system.h"

namespace ferry {

/// Like run(), with each item written as one zstd frame (with its size and a checksum), one after
/// another without gaps, in the order that the plan has them in. How long they become shows only
/// now: the plan's target is changed to what was written. Its files have their new sizes; extents
/// of chunks and objects are those of the whole items, marked as zstd; items have no payloads, and
/// there are no literals. The same plan gives the same bytes, whatever the number of threads.
///
/// The items must tile the files and be torch.save archives where they hold tensors. `options`:
/// memory holds what is read and what waits for its place in the file; where levels need more than
/// that, fewer threads work. Progress counts bytes before compression.
std::vector<Digest> run_compressed(Plan& plan, const FileSystem& file_system,
                                   const std::string& folder, int level,
                                   const EngineOptions& options);

}  // namespace ferry
