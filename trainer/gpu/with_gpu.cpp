#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <utility>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/base/threads.h"
#include "ckpt/engine/tiles/buffer.h"
#include "ckpt/memory/region.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/device/device.h"
#include "trainer/communicator/nccl/nccl_communicator.h"
#include "trainer/gpu/gpu_device.h"

namespace ferry {

// Stages GPU memory for saves while the GPU computes.

/// Copies into pinned memory, if the host has enough, on its own stream. Refers to `device`, which
/// another thread may use at the same time.
std::shared_ptr<Stager> gpu_stager(kernels::cuda::Device& device);

namespace {

using kernels::cuda::check;
using kernels::cuda::Device;

constexpr const char* kCopying = "staging a save";

// Host memory that a device accesses directly. Many threads touch its pages before they are pinned:
// the driver would do so one by one.
class PinnedMemory {
 public:
  PinnedMemory(const Device& device, uint64_t bytes) : device_(device.index()) {
    constexpr size_t kPageBytes = 4096, kEachThread = size_t{64} << 20;
    try {
      bytes_ = buffer_.take(bytes);
    } catch (const std::bad_alloc&) {
      fail(ErrorKind::exhausted, "no memory to stage {} bytes", bytes);
    }
    const size_t parts = bytes_.size() / kEachThread + 1;
    std::atomic<size_t> next{0};
    on_threads(thread_count(0), [&](int, const std::atomic<bool>& stop) {
      for (size_t part = next++; part < parts && !stop; part = next++) {
        const size_t end = std::min(bytes_.size(), (part + 1) * kEachThread);
        for (size_t at = part * kEachThread; at < end; at += kPageBytes) bytes_[at] = std::byte{};
      }
    });
    device.enter();
    // If no more memory can be pinned, the driver copies through its own pinned buffer.
    is_pinned_ = !bytes_.empty() && cudaHostRegister(bytes_.data(), bytes_.size(),
                                                     cudaHostRegisterPortable) == cudaSuccess;
    if (!is_pinned_) (void)cudaGetLastError();
  }
  ~PinnedMemory() {
    if (!is_pinned_) return;
    (void)cudaSetDevice(device_);
    (void)cudaHostUnregister(bytes_.data());
  }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  std::span<std::byte> bytes() const noexcept { return bytes_; }

 private:
  int device_;
  Buffer buffer_;
  std::span<std::byte> bytes_;
  bool is_pinned_ = false;
};

// Small enough to start the next copy soon, large enough for full bandwidth.
std::vector<StagingCopy> in_pieces(std::span<const StagingCopy> copies) {
  constexpr uint64_t kPieceBytes = 16 << 20;
  std::vector<StagingCopy> pieces;
  for (const StagingCopy& one : copies) {
    for (uint64_t at = 0; at < one.bytes; at += kPieceBytes) {
      pieces.push_back({one.from + at, one.to + at, std::min(kPieceBytes, one.bytes - at)});
    }
  }
  return pieces;
}

// Merges contiguous copies.
std::vector<StagingCopy> joined(std::span<const StagingCopy> pieces) {
  std::vector<StagingCopy> copies;
  for (const StagingCopy& one : pieces) {
    StagingCopy* const last = copies.empty() ? nullptr : &copies.back();
    if (last != nullptr && last->from + last->bytes == one.from &&
        last->to + last->bytes == one.to) {
      last->bytes += one.bytes;
    } else {
      copies.push_back(one);
    }
  }
  return copies;
}

class GpuStager final : public Stager {
 public:
  explicit GpuStager(Device& device) : device_(device) {}
  ~GpuStager() override {
    if (stream_ == nullptr) return;
    (void)cudaSetDevice(device_.index());
    (void)cudaStreamDestroy(stream_);
  }

  StagingMemory allocate(uint64_t bytes) override {
    const auto memory = std::make_shared<PinnedMemory>(device_, bytes);
    return {memory->bytes(), memory};
  }

  std::shared_ptr<void> now() override {
    device_.enter();
    return moment_of(device_.stream());
  }

  void copy(std::span<const StagingCopy> copies, const std::shared_ptr<void>& moment) override {
    const std::lock_guard lock(mutex_);
    device_.enter();
    queue(copies, moment, kCopying);
    check(cudaStreamSynchronize(stream_), kCopying);
  }

  // Copies piece by piece until the memory is about to change: the rest is then copied to other
  // device memory first, if available, which takes a fortieth of the time.
  void copy_overlapped(std::span<const StagingCopy> copies, const std::shared_ptr<void>& moment,
                       const std::function<std::shared_ptr<void>()>& due,
                       const std::function<void()>& release) override {
    const std::lock_guard lock(mutex_);
    device_.enter();
    const std::vector<StagingCopy> pieces = in_pieces(copies);
    queue({}, moment, kCopying);
    std::shared_ptr<void> end;
    std::deque<std::shared_ptr<void>> queued;
    size_t next = 0;
    for (; next < pieces.size() && !has_come(end); ++next) {
      queue({&pieces[next], 1}, nullptr, kCopying);
      queued.push_back(mark());
      if (queued.size() == 2) {
        wait_for(queued.front());
        queued.pop_front();
      }
      if (!end && (end = due())) take_spare(bytes_of(pieces, next + 1));
    }
    std::vector<StagingCopy> left =
        joined({pieces.begin() + static_cast<ptrdiff_t>(next), pieces.end()});
    const bool is_spared = !left.empty() && spare_bytes_ >= bytes_of(pieces, next);
    if (is_spared) {
      std::byte* to = static_cast<std::byte*>(spare_.get());
      for (StagingCopy& one : left) {
        const StagingCopy away{one.from, to, one.bytes};
        queue({&away, 1}, nullptr, kCopying);
        one.from = std::exchange(to, to + one.bytes);
      }
      wait_for(mark());
      release();
    }
    queue(left, nullptr, kCopying);
    check(cudaStreamSynchronize(stream_), kCopying);
    if (!is_spared) release();
  }

  std::function<void()> place(std::span<const StagingCopy> copies) override {
    const std::lock_guard lock(mutex_);
    device_.enter();
    queue(copies, now(), "copying loaded data");
    return [end = mark()] { wait_for(end); };
  }

 private:
  static std::shared_ptr<void> moment_of(cudaStream_t stream) {
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
    std::shared_ptr<void> moment(
        event, [](void* e) { (void)cudaEventDestroy(static_cast<cudaEvent_t>(e)); });
    check(cudaEventRecord(event, stream), "recording an event");
    return moment;
  }
  std::shared_ptr<void> mark() const { return moment_of(stream_); }
  static bool has_come(const std::shared_ptr<void>& moment) {
    return moment && cudaEventQuery(static_cast<cudaEvent_t>(moment.get())) == cudaSuccess;
  }
  static void wait_for(const std::shared_ptr<void>& moment) {
    check(cudaEventSynchronize(static_cast<cudaEvent_t>(moment.get())), "copying during the run");
  }

  static size_t bytes_of(const std::vector<StagingCopy>& copies, size_t first) {
    size_t bytes = 0;
    for (size_t i = first; i < copies.size(); ++i) bytes += copies[i].bytes;
    return bytes;
  }

  // Device memory for this many bytes, if that leaves as much free. It is kept.
  void take_spare(size_t bytes) {
    size_t free = 0, total = 0;
    if (bytes <= spare_bytes_ || cudaMemGetInfo(&free, &total) != cudaSuccess || free / 2 < bytes) {
      return;
    }
    spare_.reset();
    spare_bytes_ = 0;
    try {
      spare_ = device_.allocate(bytes);
      spare_bytes_ = bytes;
    } catch (const std::bad_alloc&) {
      // Otherwise the run waits for the copy.
    }
  }

  // After that moment.
  void queue(std::span<const StagingCopy> copies, const std::shared_ptr<void>& moment,
             const char* what) {
    if (stream_ == nullptr) {
      check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
    }
    if (moment) {
      check(cudaStreamWaitEvent(stream_, static_cast<cudaEvent_t>(moment.get())), "waiting");
    }
    for (const StagingCopy& one : copies) {
      check(cudaMemcpyAsync(one.to, one.from, one.bytes, cudaMemcpyDefault, stream_), what);
    }
  }

  Device& device_;
  std::mutex mutex_;  // several savers may share it
  cudaStream_t stream_ = nullptr;
  std::shared_ptr<void> spare_;
  size_t spare_bytes_ = 0;
};

}  // namespace

std::shared_ptr<Stager> gpu_stager(Device& device) { return std::make_shared<GpuStager>(device); }

namespace {

void use_cudnn(kernels::cuda::CudaKernels& kernels) {
  try {
    kernels.use_cudnn();
  } catch (const std::runtime_error& error) {
    fail(ErrorKind::unsupported,
         "--attention-backend fused: {}; or give --attention-backend auto, for ferry's own kernels",
         error.what());
  }
}

}  // namespace

int gpu_count() noexcept { return kernels::cuda::device_count(); }

RankDevice gpu_device(const std::shared_ptr<Group>& group, std::shared_ptr<Links> links, int gpu,
                      bool uses_cudnn) {
  auto kernels = std::make_unique<kernels::cuda::CudaKernels>(gpu);
  if (uses_cudnn) use_cudnn(*kernels);
  RankDevice device;
  device.stager = gpu_stager(kernels->device());
  device.make_communicator = gpu_communicators(group, std::move(links), *kernels);
  device.peak_bytes = [kernels = kernels.get()] { return kernels->device().peak_bytes(); };
  device.kernels = std::move(kernels);
  return device;
}

}  // namespace ferry
