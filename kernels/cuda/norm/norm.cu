// RMSNorm and LayerNorm: rows of packs stay in registers, others are read again.
#include "kernels/cuda/norm/norm.cuh"
#include "kernels/cuda/operations.h"

namespace ferry::kernels::cuda {

namespace {

/// Writes W columns of y from column i of a row on.
template <int W, typename Y>
__device__ void store_normal(const NormForward& x, Y* to, int64_t i, Pack<W> value, float mean,
                             float inverse) {
  const auto weight = weights<W>(x.weight, x.one_plus_weight, i);
  Pack<W> bias{};
  if (x.bias) bias = weights<W>(x.bias, false, i);
#pragma unroll
  for (int j = 0; j < W; ++j) {
    value.v[j] = (value.v[j] - mean) * inverse * weight.v[j] + bias.v[j];
  }
  store<W>(to + i, value);
}

/// Stores statistics for the backward pass, by one thread of the row.
__device__ void keep_statistics(const NormForward& x, int64_t row, float mean, float inverse) {
  if (x.mean && !x.rms) x.mean[row] = mean;
  if (x.inverse) x.inverse[row] = inverse;
}

/// Rows of any width, read again from the caches.
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
    from = sum;  // each thread reads back its own writes
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
    store_normal<W>(x, to, i, load<W>(from + i), mean, inverse);
  }
  if (threadIdx.x % ThreadsOfRow == 0) keep_statistics(x, row, mean, inverse);
}

/// Rows of packs, read once: each of the row's threads has K packs. ThreadsOfRow == kThreads means
/// a whole block, with as many threads as the row needs.
template <int K, int ThreadsOfRow, typename T, typename Y>
__global__ void norm_forward_packs(NormForward x, RowStarts starts) {
  constexpr bool kIsBlock = ThreadsOfRow == kThreads;
  __shared__ float scratch[2][32];
  const int64_t row = kIsBlock ? blockIdx.x : own_row<ThreadsOfRow>();
  if (row >= x.rows * x.heads) return;
  const int64_t start = starts(row);
  const int threads = kIsBlock ? static_cast<int>(blockDim.x) : ThreadsOfRow;
  const int thread = kIsBlock ? threadIdx.x : threadIdx.x % ThreadsOfRow;
  const auto column = [&](int k) { return (k * threads + thread) * kPack; };
  const auto width = static_cast<int>(x.width);
  const T* const from = static_cast<const T*>(x.x.data) + start;
  const T* const residual = static_cast<const T*>(x.residual.data) + start;
  Y* const to = static_cast<Y*>(x.y.data) + start;
  StoredPack<kPack, T> read[K]{}, other[K]{};
#pragma unroll
  for (int k = 0; k < K; ++k) {
    if (column(k) >= width) continue;
    read[k] = load_stored<kPack>(from + column(k));
    if (x.residual) other[k] = load_stored<kPack>(residual + column(k));
  }
  Pack<kPack> value[K];
  float sum = 0;
#pragma unroll
  for (int k = 0; k < K; ++k) {
    value[k] = to_pack<kPack>(read[k]);
    if (x.residual) {
      const auto added = to_pack<kPack>(other[k]);
#pragma unroll
      for (int j = 0; j < kPack; ++j) {
        value[k].v[j] = to_float(from_float<T>(value[k].v[j] + added.v[j]));
      }
      if (column(k) < width) store(static_cast<T*>(x.sum.data) + start + column(k), value[k]);
    }
#pragma unroll
    for (int j = 0; j < kPack; ++j) sum += value[k].v[j];
  }
  const auto columns = static_cast<float>(width);
  const float mean = x.rms ? 0.0F : row_sum<ThreadsOfRow>(sum, scratch[0]) / columns;
  float squares = 0;
#pragma unroll
  for (int k = 0; k < K; ++k) {
    if (column(k) >= width) continue;
#pragma unroll
    for (int j = 0; j < kPack; ++j) squares += (value[k].v[j] - mean) * (value[k].v[j] - mean);
  }
  squares = row_sum<ThreadsOfRow>(squares, scratch[1]) / columns;
  const float inverse = 1.0F / sqrtf(squares + static_cast<float>(x.epsilon));
#pragma unroll
  for (int k = 0; k < K; ++k) {
    if (column(k) < width) store_normal<kPack>(x, to, column(k), value[k], mean, inverse);
  }
  if (thread == 0) keep_statistics(x, row, mean, inverse);
}

/// Returns false if the rows are too wide for norm_forward_packs().
template <typename T, typename Y>
bool run_packs(Device& device, const NormForward& x, const RowStarts& starts) {
  const int64_t rows = x.rows * x.heads, packs = x.width / kPack;
  if (packs > 4 * kThreads) return false;
  const auto launch = [&](auto* kernel, int64_t rows_of_block, unsigned threads = kThreads) {
    const auto blocks = static_cast<unsigned>(ceil_div(rows, rows_of_block));
    kernel<<<blocks, threads, 0, device.stream()>>>(x, starts);
  };
  if (packs <= 16) {
    launch(norm_forward_packs<1, 16, T, Y>, kThreads / 16);
  } else if (packs <= 32) {
    launch(norm_forward_packs<1, 32, T, Y>, kThreads / 32);
  } else if (packs <= 4 * 32) {
    launch(norm_forward_packs<4, 32, T, Y>, kThreads / 32);
  } else if (packs <= 2 * kThreads) {
    launch(norm_forward_packs<2, kThreads, T, Y>, 1, threads_of_block(x.width, 2));
  } else {
    launch(norm_forward_packs<4, kThreads, T, Y>, 1, threads_of_block(x.width, 4));
  }
  return true;
}

}  // namespace

void run(Device& device, const NormForward& x) {
  if (x.rows * x.heads == 0) return;
  const RowStarts starts(x);
  const bool packed =
      is_packed({x.x.data, x.residual.data, x.sum.data, x.y.data, x.weight.data, x.bias.data},
                {x.width, starts.row_stride, starts.head_stride});
  with_types(x.x.type, x.y.type, [&]<typename T, typename Y>(T*, Y*) {
    if (packed && run_packs<T, Y>(device, x, starts)) return;
    with_rows(x.rows * x.heads, x.width, packed,
              [&](auto pack, auto threads_of_row, unsigned blocks) {
                norm_forward<decltype(pack)::value, decltype(threads_of_row)::value, T, Y>
                    <<<blocks, kThreads, 0, device.stream()>>>(x, starts);
              });
  });
  check_launch("norm");
}

}  // namespace ferry::kernels::cuda
