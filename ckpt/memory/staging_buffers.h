// The buffers that snapshots are copied to.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "ckpt/engine/tiles/buffer.h"
#include "ckpt/memory/region.h"

namespace ferry {

/// Safe from several threads.
class StagingBuffers {
 public:
  StagingBuffers(int most, uint64_t most_bytes) : most_(most), most_bytes_(most_bytes) {}

  struct Slot {
    Buffer buffer;
    uint64_t bytes = 0;  // of the buffer
  };

  /// A buffer of at least `bytes` bytes, once one is free. exhausted when it would never fit.
  std::unique_ptr<Slot> take(uint64_t bytes);
  void give_back(std::unique_ptr<Slot> slot);
  uint64_t bytes() const;  // of all, free or not

 private:
  std::unique_ptr<Slot> try_take(uint64_t bytes);

  const int most_;
  const uint64_t most_bytes_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int taken_ = 0;
  uint64_t bytes_ = 0;
  std::vector<std::unique_ptr<Slot>> free_;
};

/// Bytes that the regions need in one buffer. As checked_bytes().
uint64_t staged_bytes(std::span<const ConstRegion> regions);

/// Copies the regions, in their order, and lets them point at the copies.
void stage(std::vector<ConstRegion>& regions, std::span<std::byte> buffer, int threads);

}  // namespace ferry
