// RMSNorm and LayerNorm.
#include "kernels/cuda/norm.cuh"
#include "kernels/cuda/operations.h"

namespace ferry::kernels::cuda {

namespace {

template <int W, int ThreadsOfRow, typename T, typename Y>
__global__ void norm_forward(NormForward x, RowStarts starts) {
  __shared__ float scratch[2][32];
  const int64_t row = own_row<ThreadsOfRow>();
  if (row >= x.rows * x.heads) return;
  const int64_t start = starts(row);
  const T* from = static_cast<const T*>(x.x.data) + start;
  Y* const to = static_cast<Y*>(x.y.data) + start;
  const int64_t begin = threadIdx.x % ThreadsOfRow * W, step = ThreadsOfRow * W;
  const auto width = static_cast<float>(x.width);
  if (x.residual) {
    const T* const residual = static_cast<const T*>(x.residual.data) + start;
    T* const sum = static_cast<T*>(x.sum.data) + start;
    for (int64_t i = begin; i < x.width; i += step) {
      auto value = load<W>(from + i);
      const auto other = load<W>(residual + i);
#pragma unroll
      for (int j = 0; j < W; ++j) value.v[j] += other.v[j];
      store<W>(sum + i, value);
    }
    from = sum;  // each thread reads again what it wrote
  }
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

}  // namespace

void run(Device& device, const NormForward& x) {
  if (x.rows * x.heads == 0) return;
  const RowStarts starts(x);
  const bool packed =
      is_packed({x.x.data, x.residual.data, x.sum.data, x.y.data, x.weight.data, x.bias.data},
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

}  // namespace ferry::kernels::cuda
