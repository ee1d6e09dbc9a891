// Kernels of an NVIDIA GPU.
#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/cuda/device.h"
#include "kernels/cuda/host_queue.h"
#include "kernels/cuda/operation_times.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/products.h"
#include "kernels/forwarding.h"

namespace ferry::kernels::cuda {

/// Everything runs on one stream, in the order in which it is asked for. Only wait(), and a ring of
/// pinned memory that is full, wait for the device.
class CudaKernels final : public ForwardingKernels<CudaKernels> {
 public:
  /// Of the GPU `index`. Throws std::runtime_error when there is none.
  explicit CudaKernels(int index)
      : device_(index), products_(device_), queue_(device_), times_(device_) {}

  DeviceKind kind() const noexcept override { return DeviceKind::gpu; }
  std::shared_ptr<void> allocate(size_t bytes) override;
  void upload(const void* from, void* to, size_t bytes) override { queue_.upload(from, to, bytes); }
  void download(const void* from, void* to, size_t bytes) override {
    queue_.download(from, to, bytes);
  }
  void wait() override { queue_.wait(); }

  void time_operations(bool on) override { is_timed_ = on; }
  std::vector<OperationTime> take_operation_times() override { return times_.take(); }

  Device& device() noexcept { return device_; }

  template <typename Operation>
  void forward(const Operation& x) {
    device_.enter();
    if (!is_timed_) return queue(x);
    times_.begin();
    queue(x);
    times_.add(name_of(x));
  }

 private:
  template <typename Operation>
  void queue(const Operation& x) {
    if constexpr (std::is_same_v<Operation, Matmul>) {
      products_.run(x);
    } else {
      cuda::run(device_, x);
    }
  }
  template <typename Operation>
  static std::string name_of(const Operation&) {
    return name_of_operation<Operation>();
  }
  // Products by their sizes: they are most of a step.
  static std::string name_of(const Matmul& x) {
    return "Matmul " + std::to_string(x.m) + " x " + std::to_string(x.n) + " x " +
           std::to_string(x.k) + (x.a_transposed ? " (left transposed)" : "") +
           (x.b_transposed ? " (right transposed)" : "");
  }

  Device device_;
  Products products_;
  HostQueue queue_;
  OperationTimes times_;
  bool is_timed_ = false;
};

}  // namespace ferry::kernels::cuda
