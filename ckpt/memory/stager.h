// How memory is copied aside before it is saved, and how what is loaded gets to its place: on the
// host here, by other implementations from a device and to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>

namespace ferry {

/// Where copies begin in staging memory: at cache lines.
constexpr uint64_t kStagedAlignmentBytes = 64;

/// Memory that a Stager gave; it goes with its last owner.
struct StagingMemory {
  std::span<std::byte> bytes;
  std::shared_ptr<void> owner;
};

/// Bytes to copy into staging memory, or out of it.
struct StagingCopy {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  uint64_t bytes = 0;
};

/// Called by an AsyncSaver: now() by the thread that saves, the others by its own threads, which
/// may copy for two snapshots at once. Several savers may share one: all but now() has to be safe
/// from several threads.
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

  /// Copies what the memory held at the moment that now() gave; returns when all is copied.
  /// Meanwhile the caller's work goes on.
  virtual void copy(std::span<const StagingCopy> copies, const std::shared_ptr<void>& moment) = 0;

  /// The same for memory that the caller's work is to change soon. `due` gives the moment (now())
  /// at which it does, once that is known; `release` is called once when it may: what is not copied
  /// by then may be put elsewhere first, where that is quicker.
  virtual void copy_overlapped(std::span<const StagingCopy> copies,
                               const std::shared_ptr<void>& moment,
                               const std::function<std::shared_ptr<void>()>& due,
                               const std::function<void()>& release) {
    static_cast<void>(due);
    copy(copies, moment);
    release();
  }

  /// Begins to copy from staging memory to places that the caller's work so far no longer uses. The
  /// returned function waits until all is there; call it before either side is used or freed.
  [[nodiscard]] virtual std::function<void()> place(std::span<const StagingCopy> copies) {
    for (const StagingCopy& one : copies) std::memcpy(one.to, one.from, one.bytes);
    return [] {};
  }
};

/// Host memory to host memory, by several threads (0: one for each core, at most 64), which take no
/// signals.
std::shared_ptr<Stager> host_stager(int threads = 0);

}  // namespace ferry
