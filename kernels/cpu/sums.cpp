#include "kernels/cpu/sums.h"

#include "kernels/cpu/cpu_kernels.h"

namespace ferry::kernels::FERRY_KERNELS_TARGET {

namespace {

constexpr int64_t kBlock = 1 << 16;  // elements of a partial sum

template <typename F>
FERRY_INLINE double sum_of_block(int64_t begin, int64_t end, const F& value) {
  Double sum{};
  vectors(begin, end, [&](int64_t i, auto n) { sum += value(i, n); });
  double lane[kLanes];
  std::memcpy(lane, &sum, sizeof sum);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lane[i] += lane[i + width];
  }
  return lane[0];
}

/// Adds to *sum the sum of value(i, n), by blocks of fixed size in order.
template <typename F>
FERRY_INLINE void add_sum(const Team& team, Workspace& workspace, int64_t count, double* sum,
                          const F& value) {
  const int64_t blocks = (count + kBlock - 1) / kBlock;
  double* parts = workspace.doubles(blocks);
  team.each(blocks, kBlock, [&](int64_t block) {
    const int64_t begin = block * kBlock;
    const int64_t end = begin + kBlock < count ? begin + kBlock : count;
    parts[block] = sum_of_block(begin, end, value);
  });
  for (int64_t block = 0; block < blocks; ++block) *sum += parts[block];
}

FERRY_INLINE Double widened(Float value) { return __builtin_convertvector(value, Double); }

}  // namespace

void CpuKernels::run(const SumOfSquares& x) {
  with_type(x.x.type, [&]<typename X>(X*) {
    const auto* from = static_cast<const X*>(x.x.data);
    add_sum(team_, workspace_, x.count, x.sum, [&](int64_t i, auto n) {
      const Double value = widened(load(from + i, n));
      return value * value;
    });
  });
}

void CpuKernels::run(const WeightedSum& x) {
  add_sum(team_, workspace_, x.count, x.sum, [&](int64_t i, auto n) {
    const Double value = widened(load(x.x + i, n));
    return x.weight ? value * widened(load(x.weight + i, n)) : value;
  });
}

void CpuKernels::run(const SumRows& x) {
  with_type(x.x.type, [&]<typename X>(X*) {
    const auto* from = static_cast<const X*>(x.x.data);
    add_columns(team_, x.rows, x.width, x.sum, [&](int64_t row, int64_t column, auto n) {
      return load(from + row * x.width + column, n);
    });
  });
}

}  // namespace ferry::kernels::FERRY_KERNELS_TARGET
