#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/sums.h"

namespace ferry::kernels::FERRY_KERNELS_TARGET {

namespace {

template <typename X>
float scale_of(const X& x, int64_t row) {
  return x.row_scale ? x.row_scale[row] : 1.0F;
}

}  // namespace

void CpuKernels::run(const GroupedBias& x) {
  for (size_t group = 0; group < x.bias.size(); ++group) {
    const int64_t begin = x.offsets[group];
    team_.each(x.offsets[group + 1] - begin, x.width, [&](int64_t i) {
      const float scale = scale_of(x, begin + i);
      const int64_t start = (begin + i) * x.width;
      vectors(0, x.width, [&](int64_t j, auto n) {
        const Float sum = load(x.y, start + j, n) + scale * load(x.bias[group], j, n);
        store(x.y, start + j, sum, n);
      });
    });
  }
}

void CpuKernels::run(const GroupedBiasGradient& x) {
  for (size_t group = 0; group < x.dbias.size(); ++group) {
    const int64_t begin = x.offsets[group], rows = x.offsets[group + 1] - begin;
    const Gradient sum(x.dbias[group], x.accumulate);
    add_columns(team_, rows, x.width, sum, [&](int64_t row, int64_t column, auto n) {
      return scale_of(x, begin + row) * load(x.dy, (begin + row) * x.width + column, n);
    });
    if (x.drow_scale == nullptr) continue;
    team_.each(rows, x.width, [&](int64_t i) {
      const int64_t start = (begin + i) * x.width;
      Float product{};
      vectors(0, x.width, [&](int64_t j, auto n) {
        product += load(x.dy, start + j, n) * load(x.bias[group], j, n);
      });
      x.drow_scale[begin + i] += sum_of(product);
    });
  }
}

}  // namespace ferry::kernels::FERRY_KERNELS_TARGET
