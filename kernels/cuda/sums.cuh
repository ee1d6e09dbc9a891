// Sums whose order depends only on sizes and, for sums over whole arrays, on whether packs can be
// used, so that they have the same bits on every run.
#pragma once

#include "kernels/cuda/launch.cuh"

namespace ferry::kernels::cuda {

constexpr int64_t kSumBlock = 1 << 15;  // elements of a partial sum

template <typename F>
__device__ double rest_of_sum(int64_t begin, int64_t end, const F& f) {
  double sum = 0;
  for (int64_t i = begin; i < end; ++i) sum += f.template at<1>(i);
  return sum;
}

template <int W, typename F>
__global__ void partial_sums(int64_t count, double* parts, F f) {
  __shared__ double scratch[32];
  const int64_t begin = blockIdx.x * kSumBlock;
  const int64_t end = begin + kSumBlock < count ? begin + kSumBlock : count;
  double sum = 0;
#pragma unroll 4
  for (int64_t i = begin + threadIdx.x * W; i < end; i += blockDim.x * W) {
    sum += i + W <= end ? f.template at<W>(i) : rest_of_sum(i, end, f);
  }
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

/// *sum += factor · all parts.
static __global__ void add_parts(int64_t count, const double* parts, double factor, double* sum) {
  __shared__ double scratch[32];
  double own = 0;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) own += parts[i];
  own = block_sum(own, scratch);
  if (threadIdx.x == 0) *sum += factor * own;
}

/// *sum += factor · the sum of `count` elements; f.at<W>(i) returns W of them from i on.
template <int W, typename F>
void add_sum_of_packs(Device& device, int64_t count, double factor, double* sum, const F& f) {
  if (count == 0) return;
  const int64_t blocks = ceil_div(count, kSumBlock);
  double* const parts = device.doubles(blocks);
  partial_sums<W><<<static_cast<unsigned>(blocks), kThreads, 0, device.stream()>>>(count, parts, f);
  add_parts<<<1, 1024, 0, device.stream()>>>(blocks, parts, factor, sum);
  check_launch("sum");
}

template <typename F>
struct OneByOne {
  F f;
  template <int W>
  __device__ double at(int64_t i) const {
    static_assert(W == 1);
    return f(i);
  }
};

/// *sum += factor · the sum of f(i), a double, for all i below `count`.
template <typename F>
void add_sum(Device& device, int64_t count, double factor, double* sum, const F& f) {
  add_sum_of_packs<1>(device, count, factor, sum, OneByOne<F>{f});
}

// Sums of columns. A block takes a strip of columns and some rows: each warp sums every eighth row,
// the warps' sums are added in shared memory, and the blocks' in a second kernel.
constexpr int kStripWarps = 8;

/// parts[block of rows][column] = the sum of f.at<W>(row, column) over the block's rows.
template <int W, typename F>
__global__ void partial_columns(int64_t rows, int64_t width, int64_t rows_of_block, float* parts,
                                F f) {
  __shared__ float sums[kStripWarps][32 * W];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t column = (blockIdx.x * int64_t{32} + lane) * W;
  const int64_t begin = blockIdx.y * rows_of_block;
  const int64_t end = begin + rows_of_block < rows ? begin + rows_of_block : rows;
  Pack<W> sum{};
  if (column < width) {
    for (int64_t row = begin + warp; row < end; row += kStripWarps) {
      const auto value = f.template at<W>(row, column);
#pragma unroll
      for (int i = 0; i < W; ++i) sum.v[i] += value.v[i];
    }
  }
#pragma unroll
  for (int i = 0; i < W; ++i) sums[warp][lane * W + i] = sum.v[i];
  __syncthreads();
  const int64_t first = blockIdx.x * int64_t{32} * W;
  for (int i = threadIdx.x; i < 32 * W && first + i < width; i += blockDim.x) {
    float total = 0;
#pragma unroll
    for (int w = 0; w < kStripWarps; ++w) total += sums[w][i];
    parts[blockIdx.y * width + first + i] = total;
  }
}

/// [blocks, width], and where the sums over the blocks go.
struct PartsOfColumns {
  const float* parts = nullptr;
  Gradient sum;
};

/// sum[column] = or += the parts of all blocks, of one or two arrays; many warps each add some of
/// them, so that many loads are in flight.
constexpr int kPartWarps = 32;
static __global__ void add_columns_parts(int64_t blocks, int64_t width, PartsOfColumns first,
                                         PartsOfColumns second) {
  __shared__ float sums[kPartWarps][32];
  const float* const parts = blockIdx.y == 0 ? first.parts : second.parts;
  const Gradient sum = blockIdx.y == 0 ? first.sum : second.sum;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t column = blockIdx.x * int64_t{32} + lane;
  float part = 0;
  if (column < width) {
#pragma unroll 8
    for (int64_t block = warp; block < blocks; block += kPartWarps) {
      part += parts[block * width + column];
    }
  }
  sums[warp][lane] = part;
  __syncthreads();
  if (warp != 0 || column >= width) return;
  float total = 0;
#pragma unroll
  for (int w = 0; w < kPartWarps; ++w) total += sums[w][lane];
  if (sum.accumulate) total += element(sum.array, column);
  set_element(sum.array, column, total);
}

/// Adds up the parts of one array, or of two in one launch.
inline void add_parts_of_columns(Device& device, int64_t blocks, int64_t width,
                                 const PartsOfColumns& first, const PartsOfColumns& second = {}) {
  const dim3 grid(static_cast<unsigned>(ceil_div(width, 32)), second.parts ? 2 : 1);
  add_columns_parts<<<grid, 32 * kPartWarps, 0, device.stream()>>>(blocks, width, first, second);
}

/// sum[j] = or += the sum of f.at<W>(row, j) over the rows; calls f once for each element.
template <typename F>
void add_columns(Device& device, int64_t rows, int64_t width, bool packed, const Gradient& sum,
                 const F& f) {
  if (width == 0) return;
  constexpr int64_t kLeast = 128, kMostBlocks = 256;
  const int64_t rows_of_block = std::max(kLeast, ceil_div(rows, kMostBlocks));
  const int64_t blocks = ceil_div(rows, rows_of_block);
  float* const parts = device.floats(blocks * width);
  with_pack(packed, [&](auto pack) {
    constexpr int kWidth = decltype(pack)::value;
    if (blocks == 0) return;
    const dim3 grid(static_cast<unsigned>(ceil_div(width, 32 * kWidth)),
                    static_cast<unsigned>(blocks));
    partial_columns<kWidth>
        <<<grid, 32 * kStripWarps, 0, device.stream()>>>(rows, width, rows_of_block, parts, f);
  });
  add_parts_of_columns(device, blocks, width, {parts, sum});
  check_launch("sum of columns");
}

}  // namespace ferry::kernels::cuda
