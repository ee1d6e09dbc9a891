// What the sources of attention share on the host.
#pragma once

#include <initializer_list>

#include "kernels/attention.h"
#include "kernels/cuda/device/device.h"

namespace ferry::kernels::cuda {

/// The passes for Hopper's tensor cores and copy engine. They say false, having done nothing, of
/// what they are not made for: other GPUs, fp32, wide heads, rows that the copy engine cannot take,
/// dropout of rows that begin inside a counter of the generator.
bool hopper_forward(Device& device, const AttentionForward& x);
bool hopper_backward(Device& device, const AttentionBackward& x);

/// The type that tiles of these arrays are multiplied in.
inline Type common_type(std::initializer_list<ConstArray> arrays) {
  const Type type = arrays.begin()->type;
  for (const ConstArray& array : arrays) {
    if (array.type != type) return Type::f32;
  }
  return type;
}

}  // namespace ferry::kernels::cuda
