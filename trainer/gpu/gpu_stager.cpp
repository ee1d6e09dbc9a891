#include "trainer/gpu/gpu_stager.h"

#include <algorithm>
#include <mutex>
#include <new>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/engine/tiles/buffer.h"

namespace ferry {
namespace {

using kernels::cuda::check;
using kernels::cuda::Device;

class GpuStager final : public Stager {
 public:
  explicit GpuStager(Device& device) : device_(device) {}
  ~GpuStager() override {
    if (stream_ == nullptr) return;
    (void)cudaSetDevice(device_.index());
    (void)cudaStreamDestroy(stream_);
  }

  StagingMemory allocate(uint64_t bytes) override {
    device_.enter();
    void* memory = nullptr;
    if (cudaHostAlloc(&memory, bytes, cudaHostAllocPortable) == cudaSuccess) {
      return {{static_cast<std::byte*>(memory), bytes},
              std::shared_ptr<void>(memory, [](void* p) { (void)cudaFreeHost(p); })};
    }
    (void)cudaGetLastError();
    // Slower: the driver copies by way of pinned memory of its own.
    const auto buffer = std::make_shared<Buffer>();
    try {
      return {buffer->take(bytes), buffer};
    } catch (const std::bad_alloc&) {
      fail(ErrorKind::exhausted, "no memory to stage a snapshot of {} bytes", bytes);
    }
  }

  std::shared_ptr<void> now() override {
    device_.enter();
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
    std::shared_ptr<void> moment(
        event, [](void* e) { (void)cudaEventDestroy(static_cast<cudaEvent_t>(e)); });
    check(cudaEventRecord(event, device_.stream()), "recording an event");
    return moment;
  }

  void copy(std::span<const StagingCopy> copies, const std::shared_ptr<void>& moment) override {
    const std::lock_guard lock(mutex_);
    device_.enter();
    if (stream_ == nullptr) {
      check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
    }
    if (moment) {
      check(cudaStreamWaitEvent(stream_, static_cast<cudaEvent_t>(moment.get())), "waiting");
    }
    for (const StagingCopy& one : copies) {
      check(cudaMemcpyAsync(one.to, one.from, one.bytes, cudaMemcpyDefault, stream_),
            "copying aside what is saved");
    }
    check(cudaStreamSynchronize(stream_), "copying aside what is saved");
  }

 private:
  Device& device_;
  std::mutex mutex_;  // savers that share it
  cudaStream_t stream_ = nullptr;
};

}  // namespace

std::shared_ptr<Stager> gpu_stager(Device& device) { return std::make_shared<GpuStager>(device); }

}  // namespace ferry
