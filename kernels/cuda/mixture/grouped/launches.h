// What kernels that fill the device with clusters of blocks are launched with.
#pragma once

#include <memory>
#include <unordered_map>

#include "kernels/cuda/device/device.h"

namespace ferry::kernels::cuda::grouped {

/// Of one device.
class Launches {
 public:
  explicit Launches(Device& device) : device_(device) {}

  /// How many blocks of the kernel run at once, in whole clusters. Asked of the driver, and the
  /// kernel allowed its shared memory, when it is met for the first time.
  int blocks(const void* kernel, int threads, int cluster, int shared_bytes);

  /// Of the device: zero before a kernel and, by its own doing, after it.
  int* counter();

 private:
  Device& device_;
  std::unordered_map<const void*, int> blocks_;
  std::shared_ptr<void> counter_;
};

}  // namespace ferry::kernels::cuda::grouped
