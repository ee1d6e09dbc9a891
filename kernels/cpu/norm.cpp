#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/sums.h"

namespace ferry::kernels::FERRY_KERNELS_TARGET {

namespace {

/// Offsets of the rows of heads.
template <typename X>
int64_t start_of(const X& x, int64_t row, int64_t head) {
  const int64_t head_stride = x.head_stride ? x.head_stride : x.width;
  const int64_t row_stride = x.row_stride ? x.row_stride : x.heads * head_stride;
  return row * row_stride + head * head_stride;
}

template <typename X, typename Count>
FERRY_INLINE Float weight_of(const X& x, int64_t i, Count n) {
  const Float weight = load(x.weight, i, n);
  return x.one_plus_weight ? 1.0F + weight : weight;
}

/// The sum of f(i, n) over a row.
template <typename F>
FERRY_INLINE float row_sum(int64_t width, const F& f) {
  Float sum{};
  vectors(0, width, [&](int64_t i, auto n) { sum += f(i, n); });
  return sum_of(sum);
}

template <typename T>
FERRY_INLINE void normalize(const NormForward& x, int64_t start, int64_t statistic) {
  const T* from = static_cast<const T*>(x.x.data) + start;
  const auto width = static_cast<float>(x.width);
  const float mean =
      x.rms ? 0.0F : row_sum(x.width, [&](int64_t i, auto n) { return load(from + i, n); }) / width;
  const float squares = row_sum(x.width, [&](int64_t i, auto n) {
    const Float off = first_lanes(load(from + i, n) - mean, n);
    return off * off;
  });
  const float inverse = 1.0F / __builtin_sqrtf(squares / width + static_cast<float>(x.epsilon));
  vectors(0, x.width, [&](int64_t i, auto n) {
    Float y = (load(from + i, n) - mean) * inverse * weight_of(x, i, n);
    if (x.bias) y += load(x.bias, i, n);
    store(x.y, start + i, y, n);
  });
  if (x.mean && !x.rms) x.mean[statistic] = mean;
  if (x.inverse) x.inverse[statistic] = inverse;
}

/// dx = inverse · (g - mean of g - x̂ · mean of g · x̂) with g = dy · weight; for RMSNorm without
/// the mean of g.
template <typename T>
FERRY_INLINE void differentiate(const NormBackward& x, int64_t start, float mean, float inverse) {
  const auto* from = static_cast<const T*>(x.x.data) + start;
  Float sum{}, product{};
  vectors(0, x.width, [&](int64_t i, auto n) {
    const Float gradient = load(x.dy, start + i, n) * weight_of(x, i, n);
    sum += gradient;
    product += gradient * ((load(from + i, n) - mean) * inverse);
  });
  const auto width = static_cast<float>(x.width);
  const float mean_sum = x.rms ? 0.0F : sum_of(sum) / width;
  const float mean_product = sum_of(product) / width;
  vectors(0, x.width, [&](int64_t i, auto n) {
    const Float gradient = load(x.dy, start + i, n) * weight_of(x, i, n);
    const Float normal = (load(from + i, n) - mean) * inverse;
    const Float value = inverse * (gradient - mean_sum - normal * mean_product);
    const Float before = x.accumulate ? load(x.dx, start + i, n) : Float{};
    store(x.dx, start + i, x.accumulate ? before + value : value, n);
  });
}

/// The offset of row `index` of all rows and heads.
template <typename X>
int64_t start_of(const X& x, int64_t index) {
  return x.heads == 1 ? start_of(x, index, 0) : start_of(x, index / x.heads, index % x.heads);
}

}  // namespace

void CpuKernels::run(const NormForward& x) {
  if (x.residual) {
    NormForward rest = x;
    rest.x = x.sum;
    rest.residual = {};
    run(Add{.count = x.rows * x.heads * x.width, .a = x.x, .b = x.residual, .y = x.sum});
    return run(rest);
  }
  with_type(x.x.type, [&]<typename T>(T*) {
    team_.each(x.rows * x.heads, x.width,
               [&](int64_t index) { normalize<T>(x, start_of(x, index), index); });
  });
}

void CpuKernels::run(const NormBackward& x) {
  with_type(x.x.type, [&]<typename T>(T*) {
    const auto* from = static_cast<const T*>(x.x.data);
    const int64_t rows = x.rows * x.heads;
    const auto mean = [&](int64_t index) { return x.rms ? 0.0F : x.mean[index]; };
    // Computes the parameters' gradients first, because dx may alias dy.
    add_columns(team_, rows, x.width, x.dweight, [&](int64_t row, int64_t i, auto n) {
      const int64_t at = start_of(x, row) + i;
      return load(x.dy, at, n) * ((load(from + at, n) - mean(row)) * x.inverse[row]);
    });
    if (x.dbias) {
      add_columns(team_, rows, x.width, x.dbias, [&](int64_t row, int64_t i, auto n) {
        return load(x.dy, start_of(x, row) + i, n);
      });
    }
    team_.each(rows, x.width, [&](int64_t index) {
      differentiate<T>(x, start_of(x, index), mean(index), x.inverse[index]);
    });
  });
}

}  // namespace ferry::kernels::FERRY_KERNELS_TARGET
