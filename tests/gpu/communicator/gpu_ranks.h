// Ranks on GPUs for tests: threads of this process.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/cuda_kernels.h"
#include "trainer/communicator/communicator.h"
#include "trainer/communicator/nccl/nccl_communicator.h"

namespace ferry::test {

/// One rank, while its body runs.
struct GpuRank {
  Communicator& ranks;  // all of them
  kernels::cuda::CudaKernels& kernels;
  /// Makes further communicators; begins with channel 1.
  const MakeCommunicator& make;
  /// What has to stay when the body throws, until the group was aborted.
  std::vector<std::shared_ptr<void>>& kept;

  /// Memory of the GPU with these bytes.
  void* memory(const std::vector<std::byte>& bytes) const;
  std::vector<std::byte> bytes(const void* memory, size_t count) const;
};

/// Runs `body` on each of `size` ranks, rank r on GPU r % gpus. Returns what they threw, by rank;
/// "" where nothing was.
std::vector<std::string> on_gpu_ranks(int size, int gpus,
                                      const std::function<void(const GpuRank&)>& body,
                                      const NcclOptions& options = {});

/// Floats as elements of a type, and back.
std::vector<std::byte> encode(kernels::Type type, const std::vector<float>& values);
std::vector<float> decode(kernels::Type type, const std::vector<std::byte>& bytes);

}  // namespace ferry::test
