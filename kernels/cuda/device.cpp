#include "kernels/cuda/device.h"

#include <algorithm>
#include <new>
#include <stdexcept>
#include <string>

namespace ferry::kernels::cuda {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();  // it does not stay: later calls may succeed
    throw std::bad_alloc();
  }
  throw std::runtime_error(std::string("CUDA: ") + what + ": " + cudaGetErrorString(status));
}

Device::Device(int index) : index_(index) {
  enter();
  const auto attribute = [&](cudaDeviceAttr which) {
    int value = 0;
    check(cudaDeviceGetAttribute(&value, which, index), "looking at the device");
    return value;
  };
  multiprocessors_ = attribute(cudaDevAttrMultiProcessorCount);
  architecture_ = 10 * attribute(cudaDevAttrComputeCapabilityMajor) +
                  attribute(cudaDevAttrComputeCapabilityMinor);
  shared_memory_ = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
}

Device::~Device() {
  // What is queued may still use the memory. Errors have nowhere to go.
  (void)cudaSetDevice(index_);
  (void)cudaStreamSynchronize(stream_);
  (void)cudaFree(workspace_);
  (void)cudaStreamDestroy(stream_);
}

void Device::enter() const { check(cudaSetDevice(index_), "choosing a device"); }

void* Device::workspace(size_t bytes) {
  if (bytes <= workspace_bytes_) return workspace_;
  // Seldom: sizes repeat from the second step on. cudaFree waits for what uses the memory.
  check(cudaFree(workspace_), "freeing memory");
  workspace_ = nullptr;
  workspace_bytes_ = 0;
  const size_t wanted = std::max<size_t>(bytes + bytes / 8, size_t{1} << 20);
  check(cudaMalloc(&workspace_, wanted), "taking memory");
  workspace_bytes_ = wanted;
  return workspace_;
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
