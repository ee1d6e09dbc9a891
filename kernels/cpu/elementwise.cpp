#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/vector.h"

namespace ferry::kernels::FERRY_KERNELS_TARGET {

Kernels* new_kernels(int threads);
Kernels* new_kernels(int threads) { return new CpuKernels(threads); }

namespace {

constexpr int64_t kGrain = 4 * kLanes;

}  // namespace

void CpuKernels::run(const Copy& x) {
  if (x.x.type == x.y.type) {
    const auto bytes = x.count * size_bytes(x.y.type);
    team_.parts(bytes, 4096, 1, [&](int64_t begin, int64_t end) {
      std::memcpy(static_cast<std::byte*>(x.y.data) + begin,
                  static_cast<const std::byte*>(x.x.data) + begin,
                  static_cast<size_t>(end - begin));
    });
    return;
  }
  with_types(x.x.type, x.y.type, [&]<typename X, typename Y>(X*, Y*) {
    const auto* from = static_cast<const X*>(x.x.data);
    auto* to = static_cast<Y*>(x.y.data);
    team_.parts(x.count, kGrain, 1, [&](int64_t begin, int64_t end) {
      vectors(begin, end, [&](int64_t i, auto n) { store(to + i, load(from + i, n), n); });
    });
  });
}

void CpuKernels::run(const CopyRows& x) {
  with_types(x.x.type, x.y.type, [&]<typename X, typename Y>(X*, Y*) {
    team_.each(x.rows, x.width, [&](int64_t row) {
      const auto* from = static_cast<const X*>(x.x.data) + row * x.x_stride;
      auto* to = static_cast<Y*>(x.y.data) + row * x.y_stride;
      vectors(0, x.width, [&](int64_t i, auto n) {
        const Float value = load(from + i, n);
        store(to + i, x.accumulate ? load(to + i, n) + value : value, n);
      });
    });
  });
}

void CpuKernels::run(const Clear& x) {
  team_.parts(x.count * size_bytes(x.y.type), 4096, 1, [&](int64_t begin, int64_t end) {
    std::memset(static_cast<std::byte*>(x.y.data) + begin, 0, static_cast<size_t>(end - begin));
  });
}

void CpuKernels::run(const Add& x) {
  with_type(x.y.type, [&]<typename Y>(Y*) {
    auto* y = static_cast<Y*>(x.y.data);
    team_.parts(x.count, kGrain, 1, [&](int64_t begin, int64_t end) {
      vectors(begin, end,
              [&](int64_t i, auto n) { store(y + i, load(x.a, i, n) + load(x.b, i, n), n); });
    });
  });
}

void CpuKernels::run(const Scale& x) {
  const float factor = x.factor_on_device ? x.factor * *x.factor_on_device : x.factor;
  with_type(x.y.type, [&]<typename Y>(Y*) {
    auto* y = static_cast<Y*>(x.y.data);
    team_.parts(x.count, kGrain, 1, [&](int64_t begin, int64_t end) {
      vectors(begin, end, [&](int64_t i, auto n) { store(y + i, load(x.x, i, n) * factor, n); });
    });
  });
}

void CpuKernels::run(const FillConstant& x) {
  with_type(x.y.type, [&]<typename Y>(Y*) {
    auto* y = static_cast<Y*>(x.y.data);
    team_.parts(x.count, kGrain, 1, [&](int64_t begin, int64_t end) {
      vectors(begin, end, [&](int64_t i, auto n) { store(y + i, all(x.value), n); });
    });
  });
}

}  // namespace ferry::kernels::FERRY_KERNELS_TARGET
