// RMSNorm and LayerNorm: a warp, or a block of threads, takes a row.
#include <algorithm>

#include "kernels/cuda/operations.h"
#include "kernels/cuda/sums.cuh"

namespace ferry::kernels::cuda {

namespace {

/// Where row number `index` of all rows and heads begins.
struct RowStarts {
  int64_t heads, row_stride, head_stride;
  template <typename X>
  explicit RowStarts(const X& x)
      : heads(x.heads),
        row_stride(x.row_stride),
        head_stride(x.head_stride ? x.head_stride : x.width) {
    if (row_stride == 0) row_stride = heads * head_stride;
  }
  __device__ int64_t operator()(int64_t index) const {
    return heads == 1 ? index * row_stride
                      : index / heads * row_stride + index % heads * head_stride;
  }
};

template <int W>
__device__ Pack<W> weights(const ConstArray& weight, bool one_plus, int64_t i) {
  Pack<W> w;
  if (weight.type == Type::f32) {
    w = load<W>(static_cast<const float*>(weight.data) + i);
  } else if (weight.type == Type::bf16) {
    w = load<W>(static_cast<const bf16*>(weight.data) + i);
  } else {
    w = load<W>(static_cast<const half*>(weight.data) + i);
  }
  if (one_plus) {
#pragma unroll
    for (int j = 0; j < W; ++j) w.v[j] += 1.0F;
  }
  return w;
}

/// The sum over the threads of a row. Two sums of a row have scratch of their own.
template <int ThreadsOfRow>
__device__ float row_sum(float x, float* scratch) {
  if constexpr (ThreadsOfRow == 32) {
    return warp_sum(x);
  } else {
    return block_sum(x, scratch);
  }
}

template <int ThreadsOfRow>
__device__ int64_t own_row() {
  return blockIdx.x * int64_t{blockDim.x / ThreadsOfRow} + threadIdx.x / ThreadsOfRow;
}

template <int W, int ThreadsOfRow, typename T, typename Y>
__global__ void norm_forward(NormForward x, RowStarts starts) {
  __shared__ float scratch[2][32];
  const int64_t row = own_row<ThreadsOfRow>();
  if (row >= x.rows * x.heads) return;
  const int64_t start = starts(row);
  const T* const from = static_cast<const T*>(x.x.data) + start;
  Y* const to = static_cast<Y*>(x.y.data) + start;
  const int64_t begin = threadIdx.x % ThreadsOfRow * W, step = ThreadsOfRow * W;
  const auto width = static_cast<float>(x.width);
  float mean = 0;
  if (!x.rms) {
    float sum = 0;
    for (int64_t i = begin; i < x.width; i += step) {
      const auto value = load<W>(from + i);
#pragma unroll
      for (int j = 0; j < W; ++j) sum += value.v[j];
    }
    mean = row_sum<ThreadsOfRow>(sum, scratch[0]) / width;
  }
  float squares = 0;
  for (int64_t i = begin; i < x.width; i += step) {
    const auto value = load<W>(from + i);
#pragma unroll
    for (int j = 0; j < W; ++j) squares += (value.v[j] - mean) * (value.v[j] - mean);
  }
  squares = row_sum<ThreadsOfRow>(squares, scratch[1]);
  const float inverse = 1.0F / sqrtf(squares / width + static_cast<float>(x.epsilon));
  for (int64_t i = begin; i < x.width; i += step) {
    auto value = load<W>(from + i);
    const auto weight = weights<W>(x.weight, x.one_plus_weight, i);
    Pack<W> bias{};
    if (x.bias) bias = weights<W>(x.bias, false, i);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      value.v[j] = (value.v[j] - mean) * inverse * weight.v[j] + bias.v[j];
    }
    store<W>(to + i, value);
  }
  if (threadIdx.x % ThreadsOfRow != 0) return;
  if (x.mean && !x.rms) x.mean[row] = mean;
  if (x.inverse) x.inverse[row] = inverse;
}

/// dx = inverse · (g - mean of g - x̂ · mean of g · x̂) with g = dy · weight; of RMSNorm without the
/// mean of g.
template <int W, int ThreadsOfRow, typename T, typename D>
__global__ void norm_backward(NormBackward x, RowStarts starts) {
  __shared__ float scratch[2][32];
  const int64_t row = own_row<ThreadsOfRow>();
  if (row >= x.rows * x.heads) return;
  const int64_t start = starts(row);
  const T* const from = static_cast<const T*>(x.x.data) + start;
  const D* const dy = static_cast<const D*>(x.dy.data) + start;
  D* const dx = static_cast<D*>(x.dx.data) + start;
  const float mean = x.rms ? 0.0F : x.mean[row], inverse = x.inverse[row];
  const int64_t begin = threadIdx.x % ThreadsOfRow * W, step = ThreadsOfRow * W;
  float sum = 0, product = 0;
  for (int64_t i = begin; i < x.width; i += step) {
    const auto value = load<W>(from + i), gradient = load<W>(dy + i);
    const auto weight = weights<W>(x.weight, x.one_plus_weight, i);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      const float g = gradient.v[j] * weight.v[j];
      sum += g;
      product += g * ((value.v[j] - mean) * inverse);
    }
  }
  const auto width = static_cast<float>(x.width);
  const float mean_sum = x.rms ? 0.0F : row_sum<ThreadsOfRow>(sum, scratch[0]) / width;
  const float mean_product = row_sum<ThreadsOfRow>(product, scratch[1]) / width;
  for (int64_t i = begin; i < x.width; i += step) {
    auto value = load<W>(from + i);
    const auto gradient = load<W>(dy + i);
    const auto weight = weights<W>(x.weight, x.one_plus_weight, i);
    Pack<W> before{};
    if (x.accumulate) before = load<W>(dx + i);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      const float normal = (value.v[j] - mean) * inverse;
      value.v[j] =
          before.v[j] + inverse * (gradient.v[j] * weight.v[j] - mean_sum - normal * mean_product);
    }
    store<W>(dx + i, value);
  }
}

template <typename T, typename D>
struct WeightGradient {
  const T* x;
  const D* dy;
  const float *mean, *inverse;  // mean: null of RMSNorm
  RowStarts starts;
  template <int W>
  __device__ Pack<W> at(int64_t row, int64_t column) const {
    const int64_t at = starts(row) + column;
    auto value = load<W>(x + at);
    const auto gradient = load<W>(dy + at);
    const float off = mean ? mean[row] : 0.0F, by = inverse[row];
#pragma unroll
    for (int j = 0; j < W; ++j) value.v[j] = gradient.v[j] * ((value.v[j] - off) * by);
    return value;
  }
};

template <typename D>
struct BiasGradient {
  const D* dy;
  RowStarts starts;
  template <int W>
  __device__ Pack<W> at(int64_t row, int64_t column) const {
    return load<W>(dy + starts(row) + column);
  }
};

/// f(pack, threads of a row, blocks, threads of a block) for rows of a width.
template <typename F>
void with_rows(int64_t rows, int64_t width, bool packed, const F& f) {
  with_pack(packed, [&](auto pack) {
    if (width <= 32 * 8 * decltype(pack)::value) {
      f(pack, std::integral_constant<int, 32>(), static_cast<unsigned>(ceil_div(rows, 8)), 256U);
    } else {
      f(pack, std::integral_constant<int, kThreads>(), static_cast<unsigned>(rows),
        unsigned{kThreads});
    }
  });
}

}  // namespace

void run(Device& device, const NormForward& x) {
  if (x.rows * x.heads == 0) return;
  const RowStarts starts(x);
  const bool packed = is_packed({x.x.data, x.y.data, x.weight.data, x.bias.data},
                                {x.width, starts.row_stride, starts.head_stride});
  with_types(x.x.type, x.y.type, [&]<typename T, typename Y>(T*, Y*) {
    with_rows(x.rows * x.heads, x.width, packed,
              [&](auto pack, auto threads_of_row, unsigned blocks, unsigned threads) {
                norm_forward<decltype(pack)::value, decltype(threads_of_row)::value, T, Y>
                    <<<blocks, threads, 0, device.stream()>>>(x, starts);
              });
  });
  check_launch("norm");
}

void run(Device& device, const NormBackward& x) {
  if (x.rows * x.heads == 0) return;
  const RowStarts starts(x);
  const int64_t rows = x.rows * x.heads;
  const bool packed = is_packed({x.x.data, x.dy.data, x.dx.data, x.weight.data},
                                {x.width, starts.row_stride, starts.head_stride});
  with_types(x.x.type, x.dy.type, [&]<typename T, typename D>(T*, D*) {
    const auto* from = elements<T>(x.x);
    const auto* dy = elements<D>(x.dy);
    // The parameters' gradients come first: dx may be dy.
    add_columns(device, rows, x.width, packed, x.dweight,
                WeightGradient<T, D>{from, dy, x.rms ? nullptr : x.mean, x.inverse, starts});
    if (x.dbias) {
      add_columns(device, rows, x.width, packed, x.dbias, BiasGradient<D>{dy, starts});
    }
    with_rows(rows, x.width, packed,
              [&](auto pack, auto threads_of_row, unsigned blocks, unsigned threads) {
                norm_backward<decltype(pack)::value, decltype(threads_of_row)::value, T, D>
                    <<<blocks, threads, 0, device.stream()>>>(x, starts);
              });
  });
  check_launch("norm's gradient");
}

}  // namespace ferry::kernels::cuda
