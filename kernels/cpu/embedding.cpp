#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/vector.h"

namespace ferry::kernels::FERRY_KERNELS_TARGET {

void CpuKernels::run(const EmbeddingForward& x) {
  with_types(x.table.type, x.y.type, [&]<typename T, typename Y>(T*, Y*) {
    team_.each(x.count, x.width, [&](int64_t index) {
      const int64_t row = x.ids[index] - x.first;
      const bool is_here = row >= 0 && row < x.rows;
      const auto* from = static_cast<const T*>(x.table.data) + row * x.width;
      auto* to = static_cast<Y*>(x.y.data) + index * x.width;
      vectors(0, x.width, [&](int64_t i, auto n) {
        const Float value = is_here ? load(from + i, n) : Float{};
        store(to + i, x.accumulate ? load(to + i, n) + value : value, n);
      });
    });
  });
}

// A thread takes columns, so that each row of the table is added to in the tokens' order.
void CpuKernels::run(const EmbeddingBackward& x) {
  with_types(x.dy.type, x.dtable.type, [&]<typename T, typename D>(T*, D*) {
    team_.parts(x.width, 4 * kLanes, x.count, [&](int64_t begin, int64_t end) {
      for (int64_t index = 0; index < x.count; ++index) {
        const int64_t row = x.ids[index] - x.first;
        if (row < 0 || row >= x.rows) continue;
        const auto* dy = static_cast<const T*>(x.dy.data) + index * x.width;
        auto* to = static_cast<D*>(x.dtable.data) + row * x.width;
        vectors(begin, end,
                [&](int64_t i, auto n) { store(to + i, load(to + i, n) + load(dy + i, n), n); });
      }
    });
  });
}

}  // namespace ferry::kernels::FERRY_KERNELS_TARGET
