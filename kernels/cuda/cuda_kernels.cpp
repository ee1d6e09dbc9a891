#include "kernels/cuda/cuda_kernels.h"

namespace ferry::kernels::cuda {

std::shared_ptr<void> CudaKernels::allocate(size_t bytes) {
  if (bytes == 0) return {};
  device_.enter();
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes), "taking memory");
  std::shared_ptr<void> owner(memory, [](void* p) { (void)cudaFree(p); });
  check(cudaMemsetAsync(memory, 0, bytes, device_.stream()), "clearing memory");
  return owner;
}

}  // namespace ferry::kernels::cuda
