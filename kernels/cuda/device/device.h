// One rank's queue on one NVIDIA GPU, with resources shared by its operations.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace ferry::kernels::cuda {

/// Throws if a CUDA call failed: OutOfDeviceMemory if the device is out of memory.
void check(cudaError_t status, const char* what);

/// Used by one thread at a time. Operations queued on stream() see the results of previous ones.
class Device {
 public:
  /// Opens GPU `index` and makes it the calling thread's current device.
  explicit Device(int index);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  /// Makes the GPU the calling thread's current device; every operation starts with it.
  void enter() const;

  int index() const noexcept { return index_; }
  cudaStream_t stream() const noexcept { return stream_; }
  int multiprocessors() const noexcept { return multiprocessors_; }
  int architecture() const noexcept { return architecture_; }    // 90: compute capability 9.0
  int shared_memory() const noexcept { return shared_memory_; }  // maximum bytes per block

  /// Allocates uninitialized device memory, freed with its last owner, which may outlive this.
  /// Throws OutOfDeviceMemory, as workspace() does.
  std::shared_ptr<void> allocate(size_t bytes);
  /// The same, ordered by stream(): neither allocating nor freeing waits. Null if there is not
  /// enough memory.
  std::shared_ptr<void> allocate_in_order(size_t bytes);
  /// The peak of memory allocated by allocate() and workspace().
  int64_t peak_bytes() const noexcept { return memory_->peak.load(); }

  /// At least `bytes` of uninitialized device memory for the operation being queued; reused by the
  /// next one.
  void* workspace(size_t bytes);
  float* floats(int64_t count) {
    return static_cast<float*>(workspace(static_cast<size_t>(count) * sizeof(float)));
  }
  double* doubles(int64_t count) {
    return static_cast<double*>(workspace(static_cast<size_t>(count) * sizeof(double)));
  }

  /// Called whenever the host has waited for the device: throws if the device's work was aborted,
  /// for example because another rank failed. May be null.
  void set_watch(std::function<void()> watch) { watch_ = std::move(watch); }
  void check_watch() const {
    if (watch_) watch_();
  }

 private:
  std::function<void()> watch_;
  int index_;
  int multiprocessors_ = 0, architecture_ = 0, shared_memory_ = 0;
  cudaStream_t stream_ = nullptr;
  struct Memory {
    std::atomic<int64_t> now{0}, peak{0};
    void add(int64_t bytes);
  };
  [[noreturn]] void fail_without_room(size_t bytes) const;

  std::shared_ptr<Memory> memory_ = std::make_shared<Memory>();
  std::shared_ptr<void> workspace_;
  size_t workspace_bytes_ = 0;
};

/// Number of GPUs that this process may use; 0 without a driver.
int device_count() noexcept;

}  // namespace ferry::kernels::cuda
