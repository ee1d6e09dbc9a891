// Which queries a block of keys processes.
#pragma once

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/hopper.cuh"
#include "kernels/gpu_attention.h"

namespace ferry::kernels::cuda {

/// A block of keys of a group, and the tiles of queries that attend to any of them.
template <int KEYS, int QUERIES>
struct KeyWork {
  int sequence, group, key, first_tile, last_tile;  // tiles of queries, [first, last)

  /// `head` counts the groups of all sequences.
  __device__ KeyWork(const AttentionShape& s, int head, int block) {
    sequence = head / static_cast<int>(s.groups);
    group = head - sequence * static_cast<int>(s.groups);
    key = block * KEYS;
    const int64_t first = s.key_begin + key - s.query_begin;
    first_tile = static_cast<int>((first < 0 ? 0 : first) / QUERIES);
    const int end = first < s.queries ? seeing(s, key + KEYS - 1) : 0;
    last_tile = (end + QUERIES - 1) / QUERIES;
  }
  __device__ int tiles() const { return max(last_tile - first_tile, 0); }
  /// The number of queries, from the first one on, whose document and window start at or before
  /// this key: both starts rise with the query.
  __device__ int seeing(const AttentionShape& s, int number) const {
    auto high = static_cast<int>(s.queries);
    if (!s.document_begin && s.window == 0) return high;
    int low = 0;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (first_key(s, sequence, middle) <= number) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }
};

// Per-query numbers of the backward passes for Hopper.

/// [sequence, head, padded query]: log_sum in powers of two, and delta; `in_pairs` interleaves two
/// of each.
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
