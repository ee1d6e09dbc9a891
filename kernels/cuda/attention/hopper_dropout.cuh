// Dropout of probabilities on Hopper. One counter of the generator has the numbers of four
// neighbouring keys (random.h), which lie in several threads: each computes those of one counter
// and gives the others one bit of each.
#pragma once

#include "kernels/cuda/attention/mask.cuh"

namespace ferry::kernels::cuda {

/// Rows and parts of sequences begin where counters do.
inline bool drops_by_counter(const AttentionShape& s) {
  return s.total_positions % 4 == 0 && s.key_begin % 4 == 0;
}

/// Bit i: whether the counter's i-th number is kept.
__device__ inline uint32_t kept_bits(const Kept& kept, int query, int key) {
  const int64_t element =
      (kept.rows + kept.first_query + query) * kept.width + kept.first_key + key;
  const auto words = philox(kept.key, static_cast<uint64_t>(element) / 4, 0);
  uint32_t bits = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float number = static_cast<float>(words[i] >> 8) * 0x1p-24F;
    bits |= static_cast<uint32_t>(number >= kept.probability) << i;
  }
  return bits;
}

/// Gives those of a warp's tile that are dropped a minus sign. Rows are queries: the thread's first
/// one is `query`, the other one 8 further; columns are keys from `key` on.
template <int N>
__device__ inline void mark_dropped(const Kept& kept, int query, int key, float (&p)[N]) {
  const int lane = static_cast<int>(threadIdx.x % 32), c = lane % 4;
  // Of every 8 keys, the four threads of a row and the one below it take half a row each.
  const int own_row = query + c / 2 * 8, own_key = key + c % 2 * 4;
#pragma unroll
  for (int first = 0; first < N / 4; first += 8) {  // 8 blocks of 8 keys in a word
    const int blocks = N / 4 - first < 8 ? N / 4 - first : 8;
    uint32_t own = 0;
#pragma unroll 2
    for (int j = 0; j < blocks; ++j) {
      own |= kept_bits(kept, own_row, own_key + 8 * (first + j)) << 4 * j;
    }
    const uint32_t rows[2] = {__shfl_sync(0xffffffffU, own, lane / 4 * 4 + c / 2),
                              __shfl_sync(0xffffffffU, own, lane / 4 * 4 + 2 + c / 2)};
#pragma unroll
    for (int i = 0; i < 4 * blocks; ++i) {
      const bool is_kept = rows[i % 4 / 2] >> (i / 4 * 4 + c % 2 * 2 + i % 2) & 1;
      float& each = p[4 * first + i];
      each = is_kept ? each : -each;
    }
  }
}

/// The same of a turned tile: rows are keys, the warp's from `key` on; the thread's first column is
/// `query`.
template <int N>
__device__ inline void mark_dropped_turned(const Kept& kept, int query, int key, float (&p)[N]) {
  static_assert(N / 4 <= 8);
  const int lane = static_cast<int>(threadIdx.x % 32), row = lane / 4, c = lane % 4;
  // Of every 8 queries, the 8 threads of two columns take four keys of one column each.
  uint32_t own = 0;
#pragma unroll 2
  for (int j = 0; j < N / 4; ++j) {
    own |= kept_bits(kept, query + 8 * j + row % 2, key + row / 2 * 4) << 4 * j;
  }
#pragma unroll
  for (int e = 0; e < 4; ++e) {  // of a block: two columns of the first row, two of the other one
    const int holder = (row / 4 + e / 2 * 2) * 2 + e % 2;
    const uint32_t bits = __shfl_sync(0xffffffffU, own, holder * 4 + c) >> row % 4;
#pragma unroll
    for (int j = 0; j < N / 4; ++j) {
      float& each = p[4 * j + e];
      each = bits >> 4 * j & 1 ? each : -each;
    }
  }
}

/// The gradient of the score of a probability that is marked so.
__device__ inline float marked_gradient(const Kept& kept, float p, float gradient, float delta) {
  return p > 0 ? p * fmaf(kept.scale, gradient, -delta) : p * delta;
}

}  // namespace ferry::kernels::cuda
