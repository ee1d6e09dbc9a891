// Kernels on an NVIDIA GPU.
#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/cuda/attention/cudnn/cudnn_attention.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/device/host_queue.h"
#include "kernels/cuda/device/operation_times.h"
#include "kernels/cuda/mixture/grouped/grouped.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/products/products.h"
#include "kernels/forwarding.h"

namespace ferry::kernels::cuda {

/// Everything runs in order on one stream. Only wait(), and copies when the ring of pinned memory
/// is full, wait for the device.
class CudaKernels final : public ForwardingKernels<CudaKernels> {
 public:
  /// Opens GPU `index`. Throws std::runtime_error if it does not exist.
  explicit CudaKernels(int index)
      : device_(index),
        library_(device_),
        products_(library_),
        float8_(library_),
        grouped_(device_),
        queue_(device_),
        times_(device_) {}

  /// From now on uses cuDNN for the attention that it supports. Throws what cudnn_attention() does.
  void use_cudnn() { cudnn_ = cudnn_attention(device_); }

  DeviceKind kind() const noexcept override { return DeviceKind::gpu; }
  bool has_float8() const noexcept override { return device_.architecture() >= 90; }
  bool has_grouped_float8() const noexcept override { return device_.architecture() == 90; }
  std::shared_ptr<void> allocate(size_t bytes) override;
  void upload(const void* from, void* to, size_t bytes) override { queue_.upload(from, to, bytes); }
  void download(const void* from, void* to, size_t bytes) override {
    queue_.download(from, to, bytes);
  }
  void wait() override { queue_.wait(); }

  void time_operations(bool on) override { is_timed_ = on; }
  std::vector<OperationTime> take_operation_times() override { return times_.take(); }

  void name_operations(bool on) override { is_named_ = on; }
  void capture(bool on) override;
  void begin_range(const char* name) override;
  void end_range() override;

  Device& device() noexcept { return device_; }

  template <typename Operation>
  void forward(const Operation& x) {
    device_.enter();
    if (!is_timed_ && !is_named_) return queue(x);
    const std::string name = name_of(x);
    begin_range(name.c_str());
    if (is_timed_) times_.begin();
    queue(x);
    if (is_timed_) times_.add(name);
    end_range();
  }

 private:
  template <typename Operation>
  void queue(const Operation& x) {
    if constexpr (std::is_same_v<Operation, Matmul>) {
      products_.run(x);
    } else if constexpr (std::is_same_v<Operation, Float8Matmul>) {
      float8_.run(x);
    } else if constexpr (std::is_same_v<Operation, GroupedMatmul> ||
                         std::is_same_v<Operation, GroupedFloat8Matmul> ||
                         std::is_same_v<Operation, GroupedFloat8Gradient> ||
                         std::is_same_v<Operation, GroupedMatmulGradient>) {
      grouped_.run(x);
    } else if constexpr (std::is_same_v<Operation, AttentionForward> ||
                         std::is_same_v<Operation, AttentionBackward>) {
      if (!cudnn_ || !cudnn_->run(x)) cuda::run(device_, x);
    } else {
      cuda::run(device_, x);
    }
  }
  template <typename Operation>
  static std::string name_of(const Operation&) {
    return name_of_operation<Operation>();
  }
  // Matrix products are named by their sizes: they are most of a step.
  static std::string name_of(const Matmul& x) {
    return "Matmul " + std::to_string(x.m) + " x " + std::to_string(x.n) + " x " +
           std::to_string(x.k) + (x.a_transposed ? " (left transposed)" : "") +
           (x.b_transposed ? " (right transposed)" : "");
  }
  static std::string name_of(const Float8Matmul& x) {
    return "Float8Matmul " + std::to_string(x.m) + " x " + std::to_string(x.n) + " x " +
           std::to_string(x.k);
  }

  Device device_;
  Library library_;
  Products products_;
  Float8Products float8_;
  GroupedProducts grouped_;
  std::unique_ptr<CudnnAttention> cudnn_;
  HostQueue queue_;
  OperationTimes times_;
  bool is_timed_ = false, is_named_ = false;
};

}  // namespace ferry::kernels::cuda
