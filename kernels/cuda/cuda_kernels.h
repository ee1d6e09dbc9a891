// Kernels of an NVIDIA GPU.
#pragma once

#include <memory>

#include "kernels/cuda/device.h"
#include "kernels/cuda/host_queue.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/products.h"
#include "kernels/forwarding.h"

namespace ferry::kernels::cuda {

/// Everything runs on one stream, in the order in which it is asked for. Only wait(), and a ring of
/// pinned memory that is full, wait for the device.
class CudaKernels final : public ForwardingKernels<CudaKernels> {
 public:
  /// Of the GPU `index`. Throws std::runtime_error when there is none.
  explicit CudaKernels(int index) : device_(index), products_(device_), queue_(device_) {}

  DeviceKind kind() const noexcept override { return DeviceKind::gpu; }
  std::shared_ptr<void> allocate(size_t bytes) override;
  void upload(const void* from, void* to, size_t bytes) override { queue_.upload(from, to, bytes); }
  void download(const void* from, void* to, size_t bytes) override {
    queue_.download(from, to, bytes);
  }
  void wait() override { queue_.wait(); }

  Device& device() noexcept { return device_; }

  void forward(const Matmul& x) {
    device_.enter();
    products_.run(x);
  }
  template <typename Operation>
  void forward(const Operation& x) {
    device_.enter();
    cuda::run(device_, x);
  }

 private:
  Device device_;
  Products products_;
  HostQueue queue_;
};

}  // namespace ferry::kernels::cuda
