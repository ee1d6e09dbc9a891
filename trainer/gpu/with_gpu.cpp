#include <stdexcept>
#include <utility>

#include "ckpt/base/error.h"
#include "kernels/cuda/cuda_kernels.h"
#include "trainer/communicator/nccl/nccl_communicator.h"
#include "trainer/gpu/gpu_device.h"
#include "trainer/gpu/gpu_stager.h"

namespace ferry {
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
