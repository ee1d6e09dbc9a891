// Runs a plan: threads, a memory budget, progress, cancellation.
//
// Work is cut into tiles whose source and target bytes fit a thread's share of the budget. A tile
// reads each of its source bytes once (runs that touch are one read), moves elements in memory and
// writes each target run once; long runs that are the same bytes on both sides are copied by the
// kernel. Peak memory is the budget plus what the plan itself takes, whatever the checkpoint's
// size.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ckpt/base/digest.h"
#include "ckpt/core/plan.h"
#include "ckpt/engine/engine.h"
#include "ckpt/io/file_system.h"

namespace ferry {

/// Writes the plan's files into `folder` of `file_system` (which must exist and hold none of them)
/// and syncs them. On error the folder is left for the caller to remove. The plan must have been
/// checked. The source's file system copies in the kernel where both sides are its own files.
/// Returns the digests of the plan's items as stored in the files, in the plan's order.
std::vector<Digest> run(const Plan& plan, const FileSystem& file_system, const std::string& folder,
                        const EngineOptions& options);

/// The same into files that are open already, one a file of the target catalog; without syncing.
std::vector<Digest> run(const Plan& plan, std::span<WritableFile* const> files,
                        const EngineOptions& options);

/// The same for files that are used as soon as they are written: all threads write one entry after
/// the other, in the plan's order. A file may keep a thread that writes to it waiting for files of
/// earlier entries to be used. The plan has no items.
void run_in_order(const Plan& plan, std::span<WritableFile* const> files,
                  const EngineOptions& options);

/// The same as run(), where streams of the source are decoded into files of `spool_folder`
/// meanwhile.
std::vector<Digest> run(const Plan& plan, std::span<WritableFile* const> files,
                        const FileSystem& file_system, const std::string& spool_folder,
                        const EngineOptions& options);

}  // namespace ferry
