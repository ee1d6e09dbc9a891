// CUDA's driver API, loaded when it is needed: what copying from devices takes.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

namespace ferry::python {

/// Functions of libcuda.so.1, under the names and signatures of cuda.h.
struct CudaDriver;

/// The driver, initialised. unsupported when it cannot be loaded, or finds no device. Loaded once.
const CudaDriver& cuda_driver();

/// The device whose memory `memory` is; nothing for the host's.
std::optional<int> cuda_device_of(const void* memory);

/// A device's primary context, which is the one that PyTorch and all that use the runtime API work
/// in, and a stream of its own there.
class CudaDevice {
 public:
  explicit CudaDevice(int index);
  ~CudaDevice();
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  /// Makes the context this thread's while it lives.
  class Current {
   public:
    explicit Current(const CudaDevice& device);
    ~Current();
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;
  };

  void* stream() const noexcept { return stream_; }

  /// Where a stream of the device is now.
  static std::shared_ptr<void> mark(const std::shared_ptr<CudaDevice>& device, void* stream);

  // What is queued in the device's own stream. The device is current.
  void wait_for(const std::shared_ptr<void>& mark) const;
  void queue_copy(void* to, const void* from, uint64_t bytes) const;
  void synchronize() const;

  /// False where the system does not let so much memory be pinned.
  static bool pin(void* memory, uint64_t bytes) noexcept;
  static void unpin(void* memory) noexcept;

  /// Held by who queues, until it has synchronized.
  std::mutex& mutex() noexcept { return mutex_; }

 private:
  int index_;
  void* context_ = nullptr;
  void* stream_ = nullptr;
  std::mutex mutex_;
};

}  // namespace ferry::python
