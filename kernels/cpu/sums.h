// Sums over rows.
#pragma once

#include "kernels/cpu/team.h"
#include "kernels/cpu/vector.h"

namespace ferry::kernels::FERRY_KERNELS_TARGET {

/// sum[j] += sum over rows of value(row, j, n): each thread sums its columns by blocks of rows,
/// then the blocks. The order depends only on the number of rows.
template <typename F>
FERRY_INLINE void add_columns(const Team& team, int64_t rows, int64_t width, const Gradient& sum,
                              const F& value) {
  constexpr int64_t kRows = 64, kStrip = 4;
  constexpr int64_t kColumns = kStrip * kLanes;
  const auto add = [&](int64_t at, Float total, auto n) {
    store(sum.array, at, sum.accumulate ? load(sum.array, at, n) + total : total, n);
  };
  team.parts(width, kColumns, rows, [&](int64_t first, int64_t last) {
    int64_t column = first;
    for (; column + kColumns <= last; column += kColumns) {
      Float total[kStrip] = {};
      for (int64_t block = 0; block < rows; block += kRows) {
        Float part[kStrip] = {};
        const int64_t end = block + kRows < rows ? block + kRows : rows;
        for (int64_t row = block; row < end; ++row) {
          for (int64_t i = 0; i < kStrip; ++i) part[i] += value(row, column + i * kLanes, Full{});
        }
        for (int64_t i = 0; i < kStrip; ++i) total[i] += part[i];
      }
      for (int64_t i = 0; i < kStrip; ++i) {
        const int64_t at = column + i * kLanes;
        add(at, total[i], Full{});
      }
    }
    vectors(column, last, [&](int64_t at, auto n) {
      Float total{};
      for (int64_t block = 0; block < rows; block += kRows) {
        Float part{};
        const int64_t end = block + kRows < rows ? block + kRows : rows;
        for (int64_t row = block; row < end; ++row) part += value(row, at, n);
        total += part;
      }
      add(at, total, n);
    });
  });
}

}  // namespace ferry::kernels::FERRY_KERNELS_TARGET
