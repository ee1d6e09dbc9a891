// Products of tiles that lie in the caches, as attention takes them.
#pragma once

#include "kernels/cpu/vector.h"

namespace ferry::kernels::FERRY_KERNELS_TARGET {

/// Numbers of a left factor: element (row, step) is at row · row_stride + step · step_stride.
struct Left {
  const float* data;
  int64_t row_stride, step_stride;
};

/// Rows of a matrix, `stride` elements apart.
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
  constexpr int kRows = FERRY_KERNELS_ROWS;  // as many as the target's registers hold sums of
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

}  // namespace ferry::kernels::FERRY_KERNELS_TARGET
