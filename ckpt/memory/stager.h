// How memory is copied aside before it is saved: on the host here, by other implementations from a
// device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace ferry {

/// Memory that a Stager gave; it goes with its last owner.
struct StagingMemory {
  std::span<std::byte> bytes;
  std::shared_ptr<void> owner;
};

/// Bytes to copy into staging memory.
struct StagingCopy {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  uint64_t bytes = 0;
};

/// Called by an AsyncSaver: now() by the thread that saves, the others by one of its own. Several
/// savers may share one.
class Stager {
 public:
  virtual ~Stager() = default;

  /// At least `bytes` bytes that the host can read, aligned to cache lines. exhausted when there
  /// are none. What it takes to have them is spent here, or where it can be when they are first
  /// written.
  virtual StagingMemory allocate(uint64_t bytes) = 0;

  /// Where the caller's work is: a device may still be at what was asked of it before. Returns
  /// soon.
  virtual std::shared_ptr<void> now() { return nullptr; }

  /// Copies what the memory held at the moment that now() gave; returns when all is copied. Beside
  /// it the caller's work goes on.
  virtual void copy(std::span<const StagingCopy> copies, const std::shared_ptr<void>& moment) = 0;
};

/// Host memory to host memory, by several threads (0: one for each core, at most 64), which take no
/// signals.
std::shared_ptr<Stager> host_stager(int threads = 0);

}  // namespace ferry
