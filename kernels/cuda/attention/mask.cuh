// Masks, offsets of heads, and dropout of probabilities.
#pragma once

#include "kernels/attention.h"
#include "kernels/random.h"

namespace ferry::kernels::cuda {

/// The keys visible to a query are one interval, [first, last): keys before its window or document
/// and after itself are masked.
struct Interval {
  int first, last;
};

__device__ inline int last_key(const AttentionShape& s, int query) {
  const int64_t last = s.query_begin + query + 1 - s.key_begin;
  return static_cast<int>(last < 0 ? 0 : last < s.keys ? last : s.keys);
}

__device__ inline int first_key(const AttentionShape& s, int64_t sequence, int query) {
  const int64_t position = s.query_begin + query;
  int64_t first = s.window > 0 ? position - s.window + 1 : 0;
  if (s.document_begin) {
    const int64_t stride = s.document_stride ? s.document_stride : s.queries;
    const int64_t document = s.document_begin[sequence * stride + query];
    first = first < document ? document : first;
  }
  first -= s.key_begin;
  return static_cast<int>(first < 0 ? 0 : first < s.keys ? first : s.keys);
}

/// Empty before the first query and past the last one.
__device__ inline Interval visible_keys(const AttentionShape& s, int64_t sequence, int query) {
  if (query < 0 || query >= s.queries) return {0, 0};
  const Interval seen{first_key(s, sequence, query), last_key(s, query)};
  return seen.last > seen.first ? seen : Interval{0, 0};
}

/// The offset of head h of a sequence. (64-bit division is slow.)
__device__ inline int64_t head_start(const AttentionShape& s, const HeadStrides& strides,
                                     int64_t sequence, int64_t head) {
  const uint32_t per_group = static_cast<uint32_t>(s.heads) / static_cast<uint32_t>(s.groups);
  const uint32_t group = static_cast<uint32_t>(head) / per_group;
  return sequence * strides.sequence + group * strides.group +
         (static_cast<uint32_t>(head) - group * per_group) * strides.head;
}
/// The offset of a group's keys or values.
__device__ inline int64_t group_start(const HeadStrides& strides, int64_t sequence, int64_t group) {
  return sequence * strides.sequence + group * strides.group;
}

/// The dropout factors of a head's probabilities: 0 or `scale`.
struct Kept {
  uint64_t key;
  float probability, scale;
  int64_t rows, width;  // index of the head's first row, and elements per row
  int64_t first_key, first_query;

  __device__ Kept(const AttentionShape& s, int64_t sequence, int64_t head)
      : key(s.dropout_key),
        probability(static_cast<float>(s.dropout)),
        scale(static_cast<float>(1 / (1 - s.dropout))),
        rows(s.dropout > 0 ? (s.sequence_ids[sequence] * s.total_heads + s.first_head + head) *
                                 s.total_positions
                           : 0),
        width(s.total_positions),
        first_key(s.key_begin),
        first_query(s.query_begin) {}

  /// Bit i: whether the i-th of `count` probabilities, located by place(i, query, key), is kept.
  template <typename F>
  __device__ uint32_t bits(int count, const F& place) const {
    uint32_t all = 0;
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      int query = 0, number = 0;
      place(i, query, number);
      const int64_t element = (rows + first_query + query) * width + first_key + number;
      const bool is_kept = uniform_at(key, static_cast<uint64_t>(element)) >= probability;
      all |= static_cast<uint32_t>(is_kept) << i;
    }
    return all;
  }
};

}  // namespace ferry::kernels::cuda
