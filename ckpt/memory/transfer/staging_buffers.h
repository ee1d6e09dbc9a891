// The buffers that snapshots are copied to.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "ckpt/memory/region.h"

namespace ferry {

/// Safe from several threads.
class StagingBuffers {
 public:
  StagingBuffers(std::shared_ptr<Stager> stager, int most, uint64_t most_bytes)
      : stager_(std::move(stager)), most_(most), most_bytes_(most_bytes) {}

  struct Slot {
    StagingMemory memory;
    uint64_t bytes = 0;
  };

  /// A buffer of at least `bytes` bytes, once one is free. Where so much would never fit, or cannot
  /// be had, a smaller one: as large as may be, or half, a quarter and so on of the request, which
  /// is then the most of all buffers from now on. exhausted when there is none at all.
  std::unique_ptr<Slot> take(uint64_t bytes);
  void release(std::unique_ptr<Slot> slot);
  uint64_t bytes() const;  // of all, free or not

 private:
  std::unique_ptr<Slot> try_take(uint64_t bytes);
  bool allocate(Slot& slot);

  const std::shared_ptr<Stager> stager_;
  const int most_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int taken_ = 0;
  uint64_t bytes_ = 0;
  uint64_t most_bytes_;
  std::vector<std::unique_ptr<Slot>> free_;
};

/// Bytes that the regions need in one buffer. As checked_bytes().
uint64_t staged_bytes(std::span<const ConstRegion> regions);

/// What to copy into a buffer of staged_bytes(). Lets the regions point at their copies there.
std::vector<StagingCopy> copies_into(std::span<std::byte> buffer,
                                     std::vector<ConstRegion>& regions);

}  // namespace ferry
