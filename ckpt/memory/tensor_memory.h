// Memory for tensors that come and go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "ckpt/engine/tiles/buffer.h"

namespace ferry {

/// Keeps buffers that are no longer used for tensors of about their size: most of what fresh memory
/// costs is the system clearing its pages, and layers of a model have the same tensors. Safe from
/// several threads.
class TensorMemory : public std::enable_shared_from_this<TensorMemory> {
 public:
  struct Lease {
    std::span<std::byte> bytes;   // uninitialised
    std::shared_ptr<void> owner;  // gives them back; may outlive the TensorMemory
  };

  /// `most_unused`: bytes of buffers that may be kept besides this one; others are freed first.
  Lease take(uint64_t bytes, uint64_t most_unused);

 private:
  struct Loan;

  void take_back(Buffer buffer, uint64_t bytes);

  std::mutex mutex_;                        // guards what follows
  std::multimap<uint64_t, Buffer> unused_;  // by size
  uint64_t unused_bytes_ = 0;
};

}  // namespace ferry
