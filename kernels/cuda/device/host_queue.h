// Bytes on their way between the host's memory and a device's, in the order of the stream.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "kernels/cuda/device/device.h"

namespace ferry::kernels::cuda {

/// A ring of pinned memory, which the device copies from and to by itself: the host waits only when
/// the ring is full.
class HostQueue {
 public:
  explicit HostQueue(Device& device) : device_(device) {}
  ~HostQueue();
  HostQueue(const HostQueue&) = delete;
  HostQueue& operator=(const HostQueue&) = delete;

  /// `from` may change when it returns.
  void upload(const void* from, void* to, size_t bytes);
  /// `to` has the bytes once wait() has returned.
  void download(const void* from, void* to, size_t bytes);
  /// Returns when all that was queued on the stream is done.
  void wait();

 private:
  struct Piece {
    size_t begin = 0, end = 0;  // of the ring
    cudaEvent_t done = nullptr;
    void* to = nullptr;  // of a download: where the bytes go next
  };

  size_t reserve(size_t bytes);
  void queued(size_t begin, size_t bytes, void* to);
  void finish_first();

  Device& device_;
  std::byte* ring_ = nullptr;
  size_t next_ = 0;
  std::deque<Piece> pieces_;  // by the order in which they were queued
  std::vector<cudaEvent_t> events_;
};

}  // namespace ferry::kernels::cuda
