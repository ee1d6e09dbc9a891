// Memory for tensors that come and go.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>

namespace ferry {

/// Keeps buffers that are no longer used for other tensors of about their size: for fresh memory
/// the system clears pages, which takes longer than reading a file that it has in its cache. Layers
/// of a model have the same tensors. Safe from several threads.
class TensorMemory : public std::enable_shared_from_this<TensorMemory> {
 public:
  struct Lease {
    std::span<std::byte> bytes;   // uninitialised, aligned to cache lines
    uint64_t capacity = 0;        // bytes of the buffer
    std::shared_ptr<void> owner;  // gives them back; may outlive the TensorMemory
    // Whether they are back for others to use. A weak pointer to the owner expires before that.
    std::shared_ptr<const std::atomic<bool>> is_back;
  };

  /// A buffer of at most twice the bytes. All that is then unused has at most `most_bytes` together
  /// with it; what is more is freed first.
  Lease take(uint64_t bytes, uint64_t most_bytes);

 private:
  struct Loan;
  struct Free {
    uint64_t mapped_bytes = 0;  // 0: from the heap
    void operator()(std::byte* bytes) const noexcept;
  };
  using Buffer = std::unique_ptr<std::byte[], Free>;

  static Buffer allocate(uint64_t bytes);
  void take_back(Buffer buffer, uint64_t bytes);

  std::mutex mutex_;                        // guards what follows
  std::multimap<uint64_t, Buffer> unused_;  // by size
  uint64_t unused_bytes_ = 0;
};

}  // namespace ferry
