// Products of groups of rows by kernels for Hopper.
#pragma once

#include "kernels/cuda/device/device.h"
#include "kernels/cuda/mixture/grouped/launches.h"
#include "kernels/cuda/mixture/grouped/maps.h"
#include "kernels/matmul.h"

namespace ferry::kernels::cuda::grouped {

/// Rows of a box of a weight as the left factor: [n, k] where it is transposed, [k, n] where it is
/// not.
constexpr int kWeightBoxRows = 128, kWeightAcrossBoxRows = 64;
/// c[rows of g] = a[rows of g] · b[g]: `weights` are the maps of b in the device's memory.
void hopper_rows(Device& device, Launches& launches, const GroupedMatmul& x,
                 const CUtensorMap* weights);

/// c[g] = or += transposed a[rows of g] · b[rows of g].
void hopper_gradient(Device& device, Launches& launches, const GroupedMatmulGradient& x);

}  // namespace ferry::kernels::cuda::grouped
