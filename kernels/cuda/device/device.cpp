#include "kernels/cuda/device/device.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "kernels/kernels.h"

namespace ferry::kernels::cuda {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();  // the error is not sticky: later calls may succeed
    throw OutOfDeviceMemory(std::string("the GPU's memory is full: ") + what);
  }
  throw std::runtime_error(std::string("CUDA: ") + what + ": " + cudaGetErrorString(status));
}

Device::Device(int index) : index_(index) {
  enter();
  const auto attribute = [&](cudaDeviceAttr which) {
    int value = 0;
    check(cudaDeviceGetAttribute(&value, which, index), "querying the device");
    return value;
  };
  multiprocessors_ = attribute(cudaDevAttrMultiProcessorCount);
  architecture_ = 10 * attribute(cudaDevAttrComputeCapabilityMajor) +
                  attribute(cudaDevAttrComputeCapabilityMinor);
  shared_memory_ = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
}

Device::~Device() {
  // Queued operations may still use the memory. Errors cannot be reported.
  (void)cudaSetDevice(index_);
  workspace_.reset();
  (void)cudaStreamSynchronize(stream_);
  (void)cudaStreamDestroy(stream_);
}

void Device::enter() const { check(cudaSetDevice(index_), "choosing a device"); }

std::shared_ptr<void> Device::allocate(size_t bytes) {
  enter();
  void* memory = nullptr;
  const cudaError_t status = cudaMalloc(&memory, bytes);
  if (status == cudaErrorMemoryAllocation) fail_without_room(bytes);
  check(status, "taking memory");
  const auto size = static_cast<int64_t>(bytes);
  memory_->add(size);
  return {memory, [size, count = memory_](void* p) {
            (void)cudaFree(p);  // waits for operations that use it
            count->add(-size);
          }};
}

void Device::fail_without_room(size_t bytes) const {
  (void)cudaGetLastError();
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "querying the memory");
  constexpr double kGiB = 1 << 30;
  std::array<char, 200> text{};
  std::snprintf(text.data(), text.size(),
                "GPU %d is out of memory for another %.3f GiB: of its %.1f GiB, %.3f are free and "
                "this rank uses %.3f",
                index_, static_cast<double>(bytes) / kGiB, static_cast<double>(total) / kGiB,
                static_cast<double>(free) / kGiB, static_cast<double>(memory_->now) / kGiB);
  throw OutOfDeviceMemory(text.data());
}

void Device::Memory::add(int64_t bytes) {
  const int64_t sum = now += bytes;
  for (int64_t most = peak; most < sum && !peak.compare_exchange_weak(most, sum);) {
  }
}

std::shared_ptr<void> Device::allocate_in_order(size_t bytes) {
  enter();
  void* memory = nullptr;
  const cudaError_t status = cudaMallocAsync(&memory, bytes, stream_);
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    return nullptr;
  }
  check(status, "taking memory");
  return {memory, [stream = stream_](void* p) { (void)cudaFreeAsync(p, stream); }};
}

void* Device::workspace(size_t bytes) {
  if (bytes <= workspace_bytes_) return workspace_.get();
  // Rare: sizes repeat from the second step on.
  workspace_.reset();
  memory_->add(-static_cast<int64_t>(std::exchange(workspace_bytes_, 0)));
  const size_t size = std::max<size_t>(bytes + bytes / 8, size_t{1} << 20);
  workspace_ = allocate_in_order(size);
  if (!workspace_) fail_without_room(size);
  workspace_bytes_ = size;
  memory_->add(static_cast<int64_t>(size));
  return workspace_.get();
}

int device_count() noexcept {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    (void)cudaGetLastError();
    return 0;
  }
  return count;
}

}  // namespace ferry::kernels::cuda
