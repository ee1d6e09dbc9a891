// Ranks that compute on GPUs.
#pragma once

#include "ckpt/group/group.h"
#include "trainer/loop/rank_setup.h"

namespace ferry {

/// How many GPUs this process may use; 0 where there is no driver, and in a program that was built
/// without CUDA.
int gpu_count() noexcept;

/// GPU `gpu` of this process for one rank of `group`; `links` are those of its ranks. Called on the
/// rank's own thread, by all ranks alike. `uses_cudnn`: cuDNN computes the attention that it can.
/// unsupported in a program that was built without CUDA, and where there is no cuDNN to be used.
RankDevice gpu_device(const std::shared_ptr<Group>& group, std::shared_ptr<Links> links, int gpu,
                      bool uses_cudnn = false);

}  // namespace ferry
