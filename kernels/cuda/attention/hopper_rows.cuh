// What both backward passes for Hopper know of a query's row.
#pragma once

#include "kernels/attention_workspace.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/hopper.cuh"

namespace ferry::kernels::cuda {

/// [sequence, head, padded query]: log_sum in powers of two, and delta. In pairs: two of the one
/// before two of the other.
struct RowNumbers {
  float *log_sum, *delta;
  int64_t padded;
  bool in_pairs;

  __device__ int64_t at(int64_t row) const { return in_pairs ? row / 2 * 4 + row % 2 : row; }
};

__device__ inline Pack<8> load_eight(const ConstArray& x, int64_t at) {
  if (x.type == Type::f32) return load<8>(static_cast<const float*>(x.data) + at);
  if (x.type == Type::bf16) return load<8>(static_cast<const bf16*>(x.data) + at);
  return load<8>(static_cast<const half*>(x.data) + at);
}

}  // namespace ferry::kernels::cuda
