// Shared by both passes of RMSNorm and LayerNorm: a row is processed by a warp, a part of one, or a
// block.
#pragma once

#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/norm.h"

namespace ferry::kernels::cuda {

/// The offset of row `index` of all rows and heads.
struct RowStarts {
  int64_t heads, row_stride, head_stride;
  template <typename X>
  explicit RowStarts(const X& x)
      : heads(x.heads),
        row_stride(x.row_stride),
        head_stride(x.head_stride ? x.head_stride : x.width) {
    if (row_stride == 0) row_stride = heads * head_stride;
  }
  __device__ int64_t operator()(int64_t index) const {
    if (heads == 1) return index * row_stride;
    // A 64-bit division would take longer than the row.
    const int64_t row = (index | heads) >> 32 == 0
                            ? static_cast<uint32_t>(index) / static_cast<uint32_t>(heads)
                            : index / heads;
    return row * row_stride + (index - row * heads) * head_stride;
  }
};

template <int W>
__device__ Pack<W> weights(const ConstArray& weight, bool one_plus, int64_t i) {
  Pack<W> w;
  if (weight.type == Type::f32) {
    w = load<W>(static_cast<const float*>(weight.data) + i);
  } else if (weight.type == Type::bf16) {
    w = load<W>(static_cast<const bf16*>(weight.data) + i);
  } else {
    w = load<W>(static_cast<const half*>(weight.data) + i);
  }
  if (one_plus) {
#pragma unroll
    for (int j = 0; j < W; ++j) w.v[j] += 1.0F;
  }
  return w;
}

/// The sum over the threads of a row. Two sums of a row need separate scratch.
template <int ThreadsOfRow>
__device__ float row_sum(float x, float* scratch) {
  if constexpr (ThreadsOfRow > 32) {
    return block_sum(x, scratch);
  } else {
    return warp_sum<ThreadsOfRow>(x);
  }
}

template <int ThreadsOfRow>
__device__ int64_t own_row() {
  return blockIdx.x * int64_t{blockDim.x / ThreadsOfRow} + threadIdx.x / ThreadsOfRow;
}

/// Threads, in whole warps, of a block for a row of packs with `k` packs per thread.
inline unsigned threads_of_block(int64_t width, int k) {
  return static_cast<unsigned>(ceil_div(width, 32 * kPack * int64_t{k}) * 32);
}

/// Calls f(pack, threads of a row, blocks) for rows of a width, in blocks of kThreads. Narrower
/// rows of packs have their own kernels.
template <typename F>
void with_rows(int64_t rows, int64_t width, bool packed, const F& f) {
  const auto blocks = [&](int64_t rows_of_block) {
    return static_cast<unsigned>(ceil_div(rows, rows_of_block));
  };
  if (packed) {
    f(std::integral_constant<int, kPack>(), std::integral_constant<int, kThreads>(), blocks(1));
  } else if (width <= 16) {
    f(std::integral_constant<int, 1>(), std::integral_constant<int, 16>(), blocks(kThreads / 16));
  } else if (width <= kThreads) {
    f(std::integral_constant<int, 1>(), std::integral_constant<int, 32>(), blocks(kThreads / 32));
  } else {
    f(std::integral_constant<int, 1>(), std::integral_constant<int, kThreads>(), blocks(1));
  }
}

}  // namespace ferry::kernels::cuda
