#include "kernels/cuda/cuda_kernels.h"

#include <cuda_profiler_api.h>
#include <nvtx3/nvToolsExt.h>

namespace ferry::kernels::cuda {

std::shared_ptr<void> CudaKernels::allocate(size_t bytes) {
  if (bytes == 0) return {};
  auto memory = device_.allocate(bytes);
  check(cudaMemsetAsync(memory.get(), 0, bytes, device_.stream()), "clearing memory");
  return memory;
}

void CudaKernels::capture(bool on) {
  queue_.wait();
  check(on ? cudaProfilerStart() : cudaProfilerStop(), "notifying the profiler");
}

void CudaKernels::begin_range(const char* name) {
  if (is_named_) nvtxRangePushA(name);
}

void CudaKernels::end_range() {
  if (is_named_) nvtxRangePop();
}

}  // namespace ferry::kernels::cuda
