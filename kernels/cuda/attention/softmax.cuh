// The state of the online softmax over tiles of keys, for a thread's two rows.
#pragma once

#include "kernels/cuda/attention/product.cuh"

namespace ferry::kernels::cuda {

/// Over the four threads that share a row.
__device__ inline float row_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffU, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffU, x, 2));
}
__device__ inline float row_sum(float x) {
  x += __shfl_xor_sync(0xffffffffU, x, 1);
  return x + __shfl_xor_sync(0xffffffffU, x, 2);
}

/// For two rows: the maximum score so far and this thread's part of the sum of powers.
struct RunningRows {
  float greatest[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0, 0};

  /// The natural logarithm of the sum of exponentials, and one over the sum of powers.
  template <typename T>
  __device__ void finish(float (&log_sum)[2], float (&divisor)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float all = row_sum(sum[r]);
      divisor[r] = all > 0 ? 1 / all : 1;
      log_sum[r] = all > 0 ? greatest[r] / Products<T>::kUnit + logf(all) : -INFINITY;
    }
  }
};

}  // namespace ferry::kernels::cuda
