#include "kernels/cuda/mixture/grouped/launches.h"

#include <cuda_runtime_api.h>

#include <algorithm>

namespace ferry::kernels::cuda::grouped {

int Launches::blocks(const void* kernel, int threads, int cluster, int shared_bytes) {
  int& blocks = blocks_[kernel];
  if (blocks > 0) return blocks;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
        "asking for shared memory");
  const auto size = static_cast<unsigned>(cluster);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {size, 1, 1};
  cudaLaunchConfig_t launch{};
  launch.gridDim = dim3(size);
  launch.blockDim = dim3(static_cast<unsigned>(threads));
  launch.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  launch.attrs = &attribute;
  launch.numAttrs = 1;
  int clusters = 0;
  check(cudaOccupancyMaxActiveClusters(&clusters, kernel, &launch), "counting blocks");
  blocks = cluster * std::max(clusters, 1);
  return blocks;
}

int* Launches::counter() {
  if (!counter_) {
    counter_ = device_.allocate(sizeof(int));
    check(cudaMemsetAsync(counter_.get(), 0, sizeof(int), device_.stream()), "clearing");
  }
  return static_cast<int*>(counter_.get());
}

}  // namespace ferry::kernels::cuda::grouped
