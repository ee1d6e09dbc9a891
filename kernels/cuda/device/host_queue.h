// Copies between host memory and a device, in stream order.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "kernels/cuda/device/device.h"

namespace ferry::kernels::cuda {

/// A ring of pinned memory, which the device accesses directly: the host waits only when the ring
/// is full.
class HostQueue {
 public:
  explicit HostQueue(Device& device) : device_(device) {}
  ~HostQueue();
  HostQueue(const HostQueue&) = delete;
  HostQueue& operator=(const HostQueue&) = delete;

  /// `from` may change after it returns.
  void upload(const void* from, void* to, size_t bytes);
  /// `to` has the bytes after wait().
  void download(const void* from, void* to, size_t bytes);
  /// Waits for everything queued on the stream.
  void wait();

 private:
  struct Piece {
    size_t begin = 0, end = 0;  // in the ring
    cudaEvent_t done = nullptr;
    void* to = nullptr;  // destination of a download
  };

  size_t reserve(size_t bytes);
  void queued(size_t begin, size_t bytes, void* to);
  void finish_first();

  Device& device_;
  std::byte* ring_ = nullptr;
  size_t next_ = 0;
  std::deque<Piece> pieces_;  // in queue order
  std::vector<cudaEvent_t> events_;
};

}  // namespace ferry::kernels::cuda
