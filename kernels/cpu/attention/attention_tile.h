// Shared by both attention passes: masks, and loading rows of heads as fp32. Queries are processed
// kQueries at a time, one per lane, so that the softmax over keys is a sum of vectors. Scores have
// the layout [key, query].
#pragma once

#include "kernels/attention.h"
#include "kernels/cpu/functions.h"
#include "kernels/cpu/random_block.h"
#include "kernels/cpu/vector.h"

namespace ferry::kernels::FERRY_KERNELS_TARGET {

// Products of small tiles in the cache, for attention.

/// A left factor: element (row, step) is at row · row_stride + step · step_stride.
struct Left {
  const float* data;
  int64_t row_stride, step_stride;
};

/// A matrix with rows `stride` elements apart.
template <typename T>
struct Tile {
  T* data;
  int64_t stride;
};

template <int kRows, int kVectors>
FERRY_INLINE void multiply(const Left& a, const Tile<const float>& b, int64_t steps,
                           const Tile<float>& c, bool adds) {
  Float sum[kRows][kVectors] = {};
  for (int64_t step = 0; step < steps; ++step) {
    Float factor[kVectors];
    for (int v = 0; v < kVectors; ++v) factor[v] = load(b.data + step * b.stride + v * kLanes);
    for (int row = 0; row < kRows; ++row) {
      const float number = a.data[row * a.row_stride + step * a.step_stride];
      for (int v = 0; v < kVectors; ++v) sum[row][v] += number * factor[v];
    }
  }
  for (int row = 0; row < kRows; ++row) {
    for (int v = 0; v < kVectors; ++v) {
      float* to = c.data + row * c.stride + v * kLanes;
      store(to, adds ? load(to) + sum[row][v] : sum[row][v]);
    }
  }
}

template <int kVectors>
FERRY_INLINE void multiply_rows(int64_t rows, const Left& a, const Tile<const float>& b,
                                int64_t steps, const Tile<float>& c, bool adds) {
  const auto from = [&](int64_t row) {
    return Left{a.data + row * a.row_stride, a.row_stride, a.step_stride};
  };
  const auto to = [&](int64_t row) { return Tile<float>{c.data + row * c.stride, c.stride}; };
  constexpr int kRows = FERRY_KERNELS_ROWS;  // as many sums as the target's registers hold
  int64_t row = 0;
  for (; row + kRows <= rows; row += kRows) {
    multiply<kRows, kVectors>(from(row), b, steps, to(row), adds);
  }
  for (; row < rows; ++row) multiply<1, kVectors>(from(row), b, steps, to(row), adds);
}

/// c = a·b, or c += a·b: [rows, steps] times [steps, columns]; `columns` is a multiple of kLanes.
inline void small_product(int64_t rows, int64_t columns, int64_t steps, const Left& a,
                          const Tile<const float>& b, const Tile<float>& c, bool adds) {
  constexpr int kVectors = FERRY_KERNELS_VECTORS;
  int64_t column = 0;
  for (; column + kVectors * kLanes <= columns; column += kVectors * kLanes) {
    multiply_rows<kVectors>(rows, a, {b.data + column, b.stride}, steps,
                            {c.data + column, c.stride}, adds);
  }
  for (; column < columns; column += kLanes) {
    multiply_rows<1>(rows, a, {b.data + column, b.stride}, steps, {c.data + column, c.stride},
                     adds);
  }
}

constexpr int kQueryVectors = 2;
constexpr int kQueries = kQueryVectors * kLanes;
constexpr int kKeys = 64;  // of a tile

FERRY_INLINE int64_t padded(int64_t dim) { return (dim + kLanes - 1) / kLanes * kLanes; }

/// The keys visible to a tile of queries: an interval for each query.
struct Visible {
  int32_t first[kQueries], last[kQueries];  // [first, last), numbers of keys
  int64_t begin = 0, end = 0;               // union over the queries
  int64_t all_begin = 0, all_end = 0;       // intersection over the queries

  Visible(const AttentionShape& shape, int64_t sequence, int64_t query, int64_t count) {
    begin = shape.keys;
    all_end = shape.keys;
    for (int64_t i = 0; i < kQueries; ++i) {
      first[i] = last[i] = 0;
      if (i >= count) {
        all_end = 0;
        continue;
      }
      const int64_t position = shape.query_begin + query + i;
      int64_t from = shape.window > 0 ? position - shape.window + 1 : 0;
      if (shape.document_begin) {
        const int64_t stride = shape.document_stride ? shape.document_stride : shape.queries;
        const int64_t document = shape.document_begin[sequence * stride + query + i];
        from = from < document ? document : from;
      }
      from = from < shape.key_begin ? 0 : from - shape.key_begin;
      int64_t to = position + 1 - shape.key_begin;
      to = to > shape.keys ? shape.keys : to;
      if (to < from) to = from = 0;
      first[i] = static_cast<int32_t>(from);
      last[i] = static_cast<int32_t>(to);
      if (to > from && from < begin) begin = from;
      if (to > end) end = to;
      if (from > all_begin) all_begin = from;
      if (to < all_end) all_end = to;
    }
    if (begin > end) begin = end;
  }

  bool sees_all(int64_t key, int64_t keys) const {
    return key >= all_begin && key + keys <= all_end;
  }
  /// Nonzero in the lanes of vector v whose queries attend to the key.
  FERRY_INLINE Int sees(int v, int64_t key) const {
    Int from, to;
    std::memcpy(&from, first + v * kLanes, sizeof from);
    std::memcpy(&to, last + v * kLanes, sizeof to);
    const auto number = static_cast<int32_t>(key);
    return (from <= number) & (to > number);
  }
};

/// The offset of head h of a sequence.
inline int64_t head_start(const AttentionShape& shape, const HeadStrides& strides, int64_t sequence,
                          int64_t head) {
  const int64_t heads_per_group = shape.heads / shape.groups;
  return sequence * strides.sequence + head / heads_per_group * strides.group +
         head % heads_per_group * strides.head;
}
/// The offset of a group's keys or values.
inline int64_t group_start(const HeadStrides& strides, int64_t sequence, int64_t group) {
  return sequence * strides.sequence + group * strides.group;
}

/// Loads rows of a head as fp32, padded with zeros to whole vectors: to[row][i] = factor · from.
inline void unpack_rows(const ConstArray& from, int64_t start, int64_t stride, int64_t rows,
                        int64_t dim, float factor, float* to) {
  const int64_t width = padded(dim);
  with_type(from.type, [&]<typename T>(T*) {
    const auto* data = static_cast<const T*>(from.data) + start;
    for (int64_t row = 0; row < rows; ++row) {
      vectors(0, dim, [&](int64_t i, auto n) {
        store(to + row * width + i, factor * load(data + row * stride + i, n));
      });
    }
  });
}

/// Transposes into rows of kQueries elements; rows from `rows` on are treated as zero.
inline void turn(const float* from, int64_t rows, int64_t dim, float* to) {
  const int64_t width = padded(dim);
  for (int64_t i = 0; i < dim; ++i) {
    for (int64_t row = 0; row < rows; ++row) to[i * kQueries + row] = from[row * width + i];
    for (int64_t row = rows; row < kQueries; ++row) to[i * kQueries + row] = 0;
  }
}

/// The dropout factors of a tile's probabilities, [key, query].
inline void fill_kept(const AttentionShape& shape, int64_t sequence, int64_t head, int64_t query,
                      int64_t count, int64_t key, float* kept) {
  const auto probability = static_cast<float>(shape.dropout);
  const auto scale = static_cast<float>(1 / (1 - shape.dropout));
  const int64_t rows = shape.sequence_ids[sequence] * shape.total_heads + shape.first_head + head;
  for (int64_t i = 0; i < count; ++i) {
    float numbers[kKeys];
    static_assert(kKeys == kRandomBlock);
    const int64_t row = rows * shape.total_positions + shape.query_begin + query + i;
    const int64_t first = row * shape.total_positions + shape.key_begin + key;
    uniforms(shape.dropout_key, static_cast<uint64_t>(first), numbers);
    for (int64_t j = 0; j < kKeys; ++j) {
      kept[j * kQueries + i] = numbers[j] >= probability ? scale : 0.0F;
    }
  }
}

}  // namespace ferry::kernels::FERRY_KERNELS_TARGET
