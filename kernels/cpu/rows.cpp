#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/vector.h"

namespace ferry::kernels::FERRY_KERNELS_TARGET {

void CpuKernels::run(const GatherRows& x) {
  with_types(x.x.type, x.y.type, [&]<typename T, typename Y>(T*, Y*) {
    team_.each(x.rows, x.width, [&](int64_t row) {
      const auto* from = static_cast<const T*>(x.x.data) + x.index[row] / x.divisor * x.width;
      auto* to = static_cast<Y*>(x.y.data) + row * x.width;
      vectors(0, x.width, [&](int64_t i, auto n) { store(to + i, load(from + i, n), n); });
    });
  });
}

void CpuKernels::run(const CombineRows& x) {
  with_types(x.x.type, x.y.type, [&]<typename T, typename Y>(T*, Y*) {
    const auto* from = static_cast<const T*>(x.x.data);
    team_.each(x.tokens, x.width * x.chosen, [&](int64_t token) {
      auto* to = static_cast<Y*>(x.y.data) + token * x.width;
      const int32_t* rows = x.row_of + token * x.chosen;
      vectors(0, x.width, [&](int64_t i, auto n) {
        Float sum = x.accumulate ? load(to + i, n) : Float{};
        for (int64_t j = 0; j < x.chosen; ++j) {
          sum += load(from + rows[j] * x.width + i, n);
        }
        store(to + i, sum, n);
      });
    });
  });
}

void CpuKernels::run(const GatherNumbers& x) {
  team_.each(x.count, x.terms, [&](int64_t i) {
    float sum = 0;
    for (int64_t j = 0; j < x.terms; ++j) sum += x.x[x.index[i * x.terms + j] / x.divisor];
    x.y[i] = sum;
  });
}

}  // namespace ferry::kernels::FERRY_KERNELS_TARGET
