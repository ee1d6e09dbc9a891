// Host declarations shared by the attention sources.
#pragma once

#include <initializer_list>

#include "kernels/attention.h"
#include "kernels/cuda/device/device.h"

namespace ferry::kernels::cuda {

/// The passes for Hopper's tensor cores and TMA. They return false, without doing anything, for
/// unsupported cases: other GPUs, fp32, wide heads, rows that TMA cannot address, dropout of rows
/// that start inside a counter of the generator.
bool hopper_forward(Device& device, const AttentionForward& x);
bool hopper_backward(Device& device, const AttentionBackward& x);

/// The type in which tiles of these arrays are multiplied.
inline Type common_type(std::initializer_list<ConstArray> arrays) {
  const Type type = arrays.begin()->type;
  for (const ConstArray& array : arrays) {
    if (array.type != type) return Type::f32;
  }
  return type;
}

}  // namespace ferry::kernels::cuda
