#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/functions.h"

namespace ferry::kernels::FERRY_KERNELS_TARGET {

void CpuKernels::run(const GateRows& x) {
  team_.each(x.rows, x.width, [&](int64_t row) {
    const Float gate = all(sigmoid(all(x.logit[row]))[0]);
    const int64_t first = row * x.width;
    vectors(first, first + x.width,
            [&](int64_t i, auto n) { store(x.y, i, gate * load(x.x, i, n), n); });
  });
}

void CpuKernels::run(const GateRowsBackward& x) {
  team_.each(x.rows, x.width, [&](int64_t row) {
    const float gate = sigmoid(all(x.logit[row]))[0];
    const int64_t first = row * x.width;
    Float product{};
    vectors(first, first + x.width, [&](int64_t i, auto n) {
      const Float dy = load(x.dy, i, n);
      product += dy * load(x.x, i, n);
      store(x.dx, i, gate * dy, n);
    });
    x.dlogit[row] = sum_of(product) * gate * (1 - gate);
  });
}

}  // namespace ferry::kernels::FERRY_KERNELS_TARGET
