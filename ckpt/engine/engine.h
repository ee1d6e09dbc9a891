// Runs a plan: threads, a memory budget, progress, cancellation.
//
// Work is cut into tiles whose source and target bytes fit a thread's share of the budget. A tile
// reads each of its source bytes once (runs that touch are one read), moves elements in memory and
// writes each target run once; long runs that are the same bytes on both sides are copied by the
// kernel. Peak memory is the budget plus what the plan itself takes, whatever the checkpoint's
// size.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "ckpt/base/digest.h"
#include "ckpt/core/plan.h"
#include "ckpt/io/file_system.h"

namespace ferry {

class BorrowedSources;  // ckpt/engine/borrowed_sources.h
class PassingValues;    // ckpt/core/passing_values.h

struct Progress {
  uint64_t bytes_done = 0;  // of target files
  uint64_t bytes_total = 0;
};

struct EngineOptions {
  uint64_t memory_bytes = uint64_t{512} << 20;
  int threads = 0;  // 0: one for each core, at most 64
  /// Called from one thread at a time, at most ten times a second and once at the end.
  std::function<void(const Progress&)> progress;
  const std::atomic<bool>* cancel = nullptr;  // set: stop soon with Error(cancelled)
  /// Files of the plan's source that are read first, as somebody waits for them.
  const BorrowedSources* borrowed = nullptr;
  /// Made for the plan's target and its files: is shown the bytes of the plan's items.
  PassingValues* values = nullptr;
};

/// Writes the plan's files into `folder` of `file_system` (which must exist and hold none of them)
/// and syncs them. On error the folder is left for the caller to remove. The plan must have been
/// checked. The source's file system copies in the kernel where both sides are its own files.
/// Returns the digests of the plan's items as stored in the files, in the plan's order.
std::vector<Digest> run(const Plan& plan, const FileSystem& file_system, const std::string& folder,
                        const EngineOptions& options);

/// The same into files that are open already, one a file of the target catalog; without syncing.
std::vector<Digest> run(const Plan& plan, std::span<WritableFile* const> files,
                        const EngineOptions& options);

/// The same, where streams of the source are decoded into files of `spool_folder` meanwhile.
std::vector<Digest> run(const Plan& plan, std::span<WritableFile* const> files,
                        const FileSystem& file_system, const std::string& spool_folder,
                        const EngineOptions& options);

/// All elements of one of the catalog's own entries in row-major order. exhausted when it is larger
/// than `limit_bytes`.
std::string read_tensor(const Catalog& catalog, const Entry& entry, uint64_t limit_bytes);

/// Calls `consume` with the raw bytes of every element of one of the catalog's own entries exactly
/// once, whole elements at a time and at most `memory_bytes` of them, in no particular order; from
/// one thread. Uses no other entry, so that all of them can be scanned one by one.
void scan(const Catalog& catalog, const Entry& entry, uint64_t memory_bytes,
          const std::function<void(std::span<const std::byte>)>& consume);

/// Whether two of the catalog's own entries are of one dtype and shape and hold the same bytes.
/// Reads no further than the first difference, in about `memory_bytes`.
bool same_elements(const Catalog& catalog, const Entry& a, const Entry& b, uint64_t memory_bytes);

}  // namespace ferry
