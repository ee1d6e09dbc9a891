// One rank's queue on one NVIDIA GPU, and what its operations share.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace ferry::kernels::cuda {

/// Throws what a call of CUDA says; OutOfDeviceMemory where the device's memory is full.
void check(cudaError_t status, const char* what);

/// Used by one thread at a time. An operation that is queued on stream() finds the results of those
/// before it.
class Device {
 public:
  /// Of the GPU `index`, which becomes the calling thread's.
  explicit Device(int index);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  /// Makes the GPU the calling thread's: every operation begins with it.
  void enter() const;

  int index() const noexcept { return index_; }
  cudaStream_t stream() const noexcept { return stream_; }
  int multiprocessors() const noexcept { return multiprocessors_; }
  int architecture() const noexcept { return architecture_; }    // 90: compute capability 9.0
  int shared_memory() const noexcept { return shared_memory_; }  // bytes that a block can have

  /// Memory of the device, with anything in it. It goes with its last owner, who may outlive this.
  /// Throws OutOfDeviceMemory, as workspace() does.
  std::shared_ptr<void> allocate(size_t bytes);
  /// The same by and for what is queued on stream(): neither taking it nor giving it back waits for
  /// anything. Null where there is no room.
  std::shared_ptr<void> allocate_in_order(size_t bytes);
  /// The most that allocate() and workspace() had given at once.
  int64_t peak_bytes() const noexcept { return memory_->peak.load(); }

  /// Device memory of at least `bytes`, with anything in it, for the operation that is being
  /// queued: the next one that asks gets the same.
  void* workspace(size_t bytes);
  float* floats(int64_t count) {
    return static_cast<float*>(workspace(static_cast<size_t>(count) * sizeof(float)));
  }
  double* doubles(int64_t count) {
    return static_cast<double*>(workspace(static_cast<size_t>(count) * sizeof(double)));
  }

  /// Called whenever the host has waited for the device: it throws where what the device was asked
  /// for came to nothing, as when a rank that it waited for has failed. Null: nothing is called.
  void set_watch(std::function<void()> watch) { watch_ = std::move(watch); }
  void look() const {
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

/// How many GPUs this process may use; 0 where there is no driver.
int device_count() noexcept;

}  // namespace ferry::kernels::cuda
