#include "kernels/cuda/cuda_kernels.h"

namespace ferry::kernels::cuda {

std::shared_ptr<void> CudaKernels::allocate(size_t bytes) {
  if (bytes == 0) return {};
  auto memory = device_.allocate(bytes);
  check(cudaMemsetAsync(memory.get(), 0, bytes, device_.stream()), "clearing memory");
  return memory;
}

}  // namespace ferry::kernels::cuda
