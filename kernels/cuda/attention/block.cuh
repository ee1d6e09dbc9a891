// Work distribution of the generic attention passes over blocks.
#pragma once

#include <algorithm>

#include "kernels/cuda/attention/mask.cuh"
#include "kernels/cuda/attention/product.cuh"

namespace ferry::kernels::cuda {

constexpr int kMostThreads = 128;

/// A block's queries: 16 per warp. blockIdx.x counts tiles, heads, sequences; the last queries see
/// the most keys and start first.
struct QueryTile {
  int64_t sequence, head, group;
  int rows, query;  // the block's number of queries, and its first one

  __device__ QueryTile(const AttentionShape& s, int tiles) {
    const int64_t index = blockIdx.x;
    const int64_t heads = s.heads * s.sequences;
    rows = static_cast<int>(blockDim.x) / 2;
    query = static_cast<int>(tiles - 1 - index / heads) * rows;
    head = index % heads % s.heads;
    sequence = index % heads / s.heads;
    group = head / (s.heads / s.groups);
  }
  /// The warp's first row in the block, and the query of this thread's first row.
  __device__ int warp_row() const { return static_cast<int>(threadIdx.x) / 32 * 16; }
  __device__ int own_row() const {
    return query + warp_row() + static_cast<int>(threadIdx.x) % 32 / 4;
  }
};

/// The keys visible to any of a block's queries, [begin, end), and those visible to all.
struct Bounds {
  int begin, end, all_begin, all_end;

  __device__ bool all_see(int key, int keys) const {
    return key >= all_begin && key + keys <= all_end;
  }
};

/// Masks of the two rows of each thread of the block.
__device__ inline Bounds block_bounds(const Interval (&rows)[2]) {
  __shared__ Bounds warps[kMostThreads / 32];
  Bounds b{INT_MAX, 0, 0, INT_MAX};
  for (const Interval& row : rows) {
    if (row.last > row.first) b.begin = min(b.begin, row.first);
    b.end = max(b.end, row.last);
    b.all_begin = max(b.all_begin, row.first);
    b.all_end = min(b.all_end, row.last);
  }
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    b.begin = min(b.begin, __shfl_xor_sync(0xffffffffU, b.begin, lanes));
    b.end = max(b.end, __shfl_xor_sync(0xffffffffU, b.end, lanes));
    b.all_begin = max(b.all_begin, __shfl_xor_sync(0xffffffffU, b.all_begin, lanes));
    b.all_end = min(b.all_end, __shfl_xor_sync(0xffffffffU, b.all_end, lanes));
  }
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = b;
  __syncthreads();
  for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) {
    b.begin = min(b.begin, warps[warp].begin);
    b.end = max(b.end, warps[warp].end);
    b.all_begin = max(b.all_begin, warps[warp].all_begin);
    b.all_end = min(b.all_end, warps[warp].all_end);
  }
  if (b.begin > b.end) b.begin = b.end;
  return b;
}

/// As many warps as a block's shared memory allows: bytes(warps), in addition to what kernels
/// declare.
template <typename F>
int most_warps(const Device& device, const F& bytes) {
  constexpr size_t kDeclared = 256;
  int warps = kMostThreads / 32;
  while (warps > 1 && bytes(warps) + kDeclared > static_cast<size_t>(device.shared_memory())) {
    warps /= 2;
  }
  return warps;
}

}  // namespace ferry::kernels::cuda
