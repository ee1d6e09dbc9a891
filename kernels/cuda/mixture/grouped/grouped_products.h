// Products of groups of rows, as experts compute them.
#pragma once

#include "kernels/cuda/device/device.h"
#include "kernels/cuda/mixture/grouped/launches.h"
#include "kernels/cuda/mixture/grouped/maps.h"
#include "kernels/matmul.h"

namespace ferry::kernels::cuda {

/// On Hopper by its tensor cores, where types and alignments allow that; else in tiles. The host
/// needs not know how many rows a group has. Sums have the order of the depth.
class GroupedProducts {
 public:
  explicit GroupedProducts(Device& device) : device_(device), maps_(device), launches_(device) {}

  void run(const GroupedMatmul& x);
  void run(const GroupedMatmulGradient& x);

 private:
  Device& device_;
  grouped::Maps maps_;
  grouped::Launches launches_;
};

}  // namespace ferry::kernels::cuda
