// Copies a GPU's memory aside beside what the GPU computes.
#pragma once

#include <memory>

#include "ckpt/memory/stager.h"
#include "kernels/cuda/device/device.h"

namespace ferry {

/// Into pinned memory where the host has as much, on a stream of its own. Refers to `device`, which
/// may be used by another thread meanwhile.
std::shared_ptr<Stager> gpu_stager(kernels::cuda::Device& device);

}  // namespace ferry
