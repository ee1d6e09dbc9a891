// Tensor descriptions for Hopper's copy engine (TMA).
#pragma once

#include <cuda.h>

#include <array>

#include "kernels/array.h"

namespace ferry::kernels::cuda {

/// A dimension's size and stride in elements.
struct Dimension {
  int64_t size, stride;
};

/// Whether TMA supports a tensor: every address and stride is a multiple of 16 bytes.
template <size_t N>
bool takes_tensor(const ConstArray& x, int64_t width, const std::array<Dimension, N>& dimensions) {
  if (x.type == Type::f32 || reinterpret_cast<uintptr_t>(x.data) % 16 != 0) return false;
  if (width <= 0 || width % 8 != 0) return false;
  for (const Dimension& d : dimensions) {
    if (d.size <= 0 || d.size > INT32_MAX) return false;
    if (d.size > 1 && (d.stride % 8 != 0 || d.stride <= 0)) return false;
  }
  return true;
}

/// Rows of `width` elements of 16 bits along the dimensions; a box is 64 elements of `box_rows`
/// rows of the first dimension, in the layout that products read (ptx.cuh). Elements outside are
/// zeros.
CUtensorMap tensor_map(const ConstArray& x, int64_t width, const Dimension* dimensions, int count,
                       int box_rows);
template <size_t N>
CUtensorMap tensor_map(const ConstArray& x, int64_t width,
                       const std::array<Dimension, N>& dimensions, int box_rows) {
  return tensor_map(x, width, dimensions.data(), static_cast<int>(N), box_rows);
}

}  // namespace ferry::kernels::cuda
