// How work on checkpoints is bounded, watched and stopped, and functions that read single tensors.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace ferry {

class BorrowedSources;  // ckpt/engine/borrowed_sources.h
struct Catalog;         // ckpt/core/catalog.h
struct Entry;           // ckpt/core/catalog.h
class PassingValues;    // ckpt/core/passing_values.h

struct Progress {
  uint64_t bytes_done = 0;  // of target files
  uint64_t bytes_total = 0;
};

struct EngineOptions {
  /// For buffers, all threads together; besides it, memory grows with the number of tensors and
  /// files, not with their sizes.
  uint64_t memory_bytes = uint64_t{512} << 20;
  int threads = 0;  // 0: one for each core, at most 64
  /// Called by ferry's threads, one at a time, at most ten times a second and once when all is
  /// done; not after an error. What it throws ends the operation.
  std::function<void(const Progress&)> progress = {};
  /// Set: stop soon with Error(cancelled). Must stay until the operation has returned.
  const std::atomic<bool>* cancel = nullptr;
  /// Set by ferry itself. `borrowed`: source files to read first, as their owner waits for them.
  /// `values`: receives the bytes of the plan's items as they pass.
  const BorrowedSources* borrowed = nullptr;
  PassingValues* values = nullptr;
};

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
