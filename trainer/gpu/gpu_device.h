// Ranks on GPUs.
#pragma once

#include "ckpt/group/group.h"
#include "trainer/loop/rank_setup.h"

namespace ferry {

/// Number of GPUs that this process may use; 0 without a driver or in a build without CUDA.
int gpu_count() noexcept;

/// Opens GPU `gpu` of this process for one rank of `group`, whose ranks have these `links`. Called
/// on the rank's own thread, on all ranks. `uses_cudnn`: use cuDNN for the attention that it
/// supports. unsupported in a build without CUDA, or if cuDNN is not available.
RankDevice gpu_device(const std::shared_ptr<Group>& group, std::shared_ptr<Links> links, int gpu,
                      bool uses_cudnn = false);

}  // namespace ferry
