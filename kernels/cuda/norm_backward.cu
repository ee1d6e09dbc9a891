// Gradients of RMSNorm and LayerNorm: in one pass with those of the parameters where rows are
// packs, else in several.
#include "kernels/cuda/norm.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/sums.cuh"

namespace ferry::kernels::cuda {

namespace {

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

/// The same for rows of packs, and of the block's rows the sums that the parameters' gradients are
/// made of, so that x and dy are read once. Each thread has K packs of columns of every row.
/// `dweight`, `dbias`: [blocks, width]; `dbias` may be null.
template <int K, typename T, typename D>
__global__ void norm_backward_blocks(NormBackward x, RowStarts starts, int64_t rows_of_block,
                                     float* dweight, float* dbias) {
  __shared__ float scratch[2][2][32];
  const int64_t rows = x.rows * x.heads, first = blockIdx.x * rows_of_block;
  const int64_t end = first + rows_of_block < rows ? first + rows_of_block : rows;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
  const auto column = [&](int k) { return (int64_t{k} * blockDim.x + threadIdx.x) * kPack; };
  const auto width = static_cast<float>(x.width);
  Pack<kPack> weight[K], weight_sum[K]{}, bias_sum[K]{};
#pragma unroll
  for (int k = 0; k < K; ++k) {
    weight[k] = Pack<kPack>{};
    if (column(k) < x.width) weight[k] = weights<kPack>(x.weight, x.one_plus_weight, column(k));
  }
  for (int64_t row = first; row < end; ++row) {
    const int64_t start = starts(row);
    const T* const from = static_cast<const T*>(x.x.data) + start;
    const D* const dy = static_cast<const D*>(x.dy.data) + start;
    D* const dx = static_cast<D*>(x.dx.data) + start;
    const float mean = x.rms ? 0.0F : x.mean[row], inverse = x.inverse[row];
    Pack<kPack> normal[K], gradient[K], before[K]{};
    float sum = 0, product = 0;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      normal[k] = gradient[k] = Pack<kPack>{};
      if (column(k) >= x.width) continue;
      normal[k] = load<kPack>(from + column(k));
      gradient[k] = load<kPack>(dy + column(k));
      if (x.accumulate) before[k] = load<kPack>(dx + column(k));
#pragma unroll
      for (int j = 0; j < kPack; ++j) {
        normal[k].v[j] = (normal[k].v[j] - mean) * inverse;
        weight_sum[k].v[j] += gradient[k].v[j] * normal[k].v[j];
        bias_sum[k].v[j] += gradient[k].v[j];
        gradient[k].v[j] *= weight[k].v[j];
        sum += gradient[k].v[j];
        product += gradient[k].v[j] * normal[k].v[j];
      }
    }
    // Rows take turns with the scratch: one barrier parts them.
    auto& turn = scratch[row % 2];
    sum = warp_sum(sum);
    product = warp_sum(product);
    if (lane == 0) {
      turn[0][warp] = sum;
      turn[1][warp] = product;
    }
    __syncthreads();
    const float mean_sum = x.rms ? 0.0F : warp_sum(lane < warps ? turn[0][lane] : 0.0F) / width;
    const float mean_product = warp_sum(lane < warps ? turn[1][lane] : 0.0F) / width;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      if (column(k) >= x.width) continue;
#pragma unroll
      for (int j = 0; j < kPack; ++j) {
        before[k].v[j] += inverse * (gradient[k].v[j] - mean_sum - normal[k].v[j] * mean_product);
      }
      store<kPack>(dx + column(k), before[k]);
    }
  }
#pragma unroll
  for (int k = 0; k < K; ++k) {
    if (column(k) >= x.width) continue;
    store<kPack>(dweight + blockIdx.x * x.width + column(k), weight_sum[k]);
    if (dbias) store<kPack>(dbias + blockIdx.x * x.width + column(k), bias_sum[k]);
  }
}

/// The same for narrow rows, as heads have them: a row has the threads of its packs, and a block
/// many rows at once.
template <int ThreadsOfRow, typename T, typename D>
__global__ void norm_backward_narrow(NormBackward x, RowStarts starts, int64_t rows_of_block,
                                     float* dweight, float* dbias) {
  constexpr int kRows = kThreads / ThreadsOfRow, kWidth = ThreadsOfRow * kPack;
  __shared__ float sums[kRows][kWidth];
  const int64_t rows = x.rows * x.heads, first = blockIdx.x * rows_of_block;
  const int64_t end = first + rows_of_block < rows ? first + rows_of_block : rows;
  const int own = threadIdx.x / ThreadsOfRow, column = threadIdx.x % ThreadsOfRow * kPack;
  const bool has_columns = column < x.width;
  const auto width = static_cast<float>(x.width);
  Pack<kPack> weight{}, weight_sum{}, bias_sum{};
  if (has_columns) weight = weights<kPack>(x.weight, x.one_plus_weight, column);
  for (int64_t row_of_first = first; row_of_first < end; row_of_first += kRows) {
    const int64_t row = row_of_first + own;
    const bool is_there = row < end && has_columns;
    const int64_t at = is_there ? starts(row) + column : 0;
    Pack<kPack> normal{}, gradient{}, before{};
    float mean = 0, inverse = 0, sum = 0, product = 0;
    if (is_there) {
      normal = load<kPack>(static_cast<const T*>(x.x.data) + at);
      gradient = load<kPack>(static_cast<const D*>(x.dy.data) + at);
      if (x.accumulate) before = load<kPack>(static_cast<const D*>(x.dx.data) + at);
      if (!x.rms) mean = x.mean[row];
      inverse = x.inverse[row];
    }
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      normal.v[j] = (normal.v[j] - mean) * inverse;
      weight_sum.v[j] += gradient.v[j] * normal.v[j];
      bias_sum.v[j] += gradient.v[j];
      gradient.v[j] *= weight.v[j];
      sum += gradient.v[j];
      product += gradient.v[j] * normal.v[j];
    }
    const float mean_sum = x.rms ? 0.0F : row_sum<ThreadsOfRow>(sum, nullptr) / width;
    const float mean_product = row_sum<ThreadsOfRow>(product, nullptr) / width;
    if (!is_there) continue;
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      before.v[j] += inverse * (gradient.v[j] - mean_sum - normal.v[j] * mean_product);
    }
    store<kPack>(static_cast<D*>(x.dx.data) + at, before);
  }
  const auto write = [&](const Pack<kPack>& sum, float* to) {
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kPack; ++j) sums[own][column + j] = sum.v[j];
    __syncthreads();
    for (int i = threadIdx.x; i < x.width; i += kThreads) {
      float total = 0;
#pragma unroll
      for (int row = 0; row < kRows; ++row) total += sums[row][i];
      to[blockIdx.x * x.width + i] = total;
    }
  };
  write(weight_sum, dweight);
  if (dbias) write(bias_sum, dbias);
}

/// f(std::integral_constant<int, K>) with the packs of a thread for rows of `width`.
template <typename F>
void with_packs_of_thread(int64_t width, const F& f) {
  if (width <= kPack * 256) return f(std::integral_constant<int, 1>());
  if (width <= 2 * kPack * 256) return f(std::integral_constant<int, 2>());
  f(std::integral_constant<int, 4>());
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

/// False where rows are none that the kernels for blocks of rows take.
bool run_in_blocks(Device& device, const NormBackward& x, const RowStarts& starts, bool packed) {
  constexpr int64_t kNarrow = 32 * kPack, kMostWidth = 4 * kPack * 256, kMostBlocks = 1024;
  const int64_t rows = x.rows * x.heads;
  if (rows == 0 || !packed || x.width > kMostWidth) return false;
  const bool is_narrow = x.width <= kNarrow;
  const int64_t rows_of_block = std::max<int64_t>(is_narrow ? 64 : 8, ceil_div(rows, kMostBlocks));
  const auto blocks = static_cast<unsigned>(ceil_div(rows, rows_of_block));
  float* const dweight = device.floats(2 * int64_t{blocks} * x.width);
  float* const dbias = x.dbias ? dweight + blocks * x.width : nullptr;
  with_types(x.x.type, x.dy.type, [&]<typename T, typename D>(T*, D*) {
    const auto launch = [&](auto* kernel, unsigned threads) {
      kernel<<<blocks, threads, 0, device.stream()>>>(x, starts, rows_of_block, dweight, dbias);
    };
    if (x.width <= 8 * kPack) {
      launch(norm_backward_narrow<8, T, D>, kThreads);
    } else if (x.width <= 16 * kPack) {
      launch(norm_backward_narrow<16, T, D>, kThreads);
    } else if (is_narrow) {
      launch(norm_backward_narrow<32, T, D>, kThreads);
    } else {
      with_packs_of_thread(x.width, [&](auto packs) {
        constexpr int kPacks = decltype(packs)::value;
        const auto threads = static_cast<unsigned>(ceil_div(x.width, 32 * kPack * kPacks) * 32);
        launch(norm_backward_blocks<kPacks, T, D>, threads);
      });
    }
  });
  add_parts_of_columns(device, blocks, x.width, dweight, x.dweight);
  if (dbias) add_parts_of_columns(device, blocks, x.width, dbias, x.dbias);
  return true;
}

}  // namespace

void run(Device& device, const NormBackward& x) {
  const RowStarts starts(x);
  const int64_t rows = x.rows * x.heads;
  const bool packed = is_packed({x.x.data, x.dy.data, x.dx.data, x.weight.data},
                                {x.width, starts.row_stride, starts.head_stride});
  if (run_in_blocks(device, x, starts, packed)) return check_launch("norm's gradient");
  with_types(x.x.type, x.dy.type, [&]<typename T, typename D>(T*, D*) {
    const auto* from = elements<T>(x.x);
    const auto* dy = elements<D>(x.dy);
    // The parameters' gradients come first: dx may be dy.
    add_columns(device, rows, x.width, packed, x.dweight,
                WeightGradient<T, D>{from, dy, x.rms ? nullptr : x.mean, x.inverse, starts});
    if (x.dbias) {
      add_columns(device, rows, x.width, packed, x.dbias, BiasGradient<D>{dy, starts});
    }
    if (rows == 0) return;
    with_rows(rows, x.width, packed,
              [&](auto pack, auto threads_of_row, unsigned blocks, unsigned threads) {
                norm_backward<decltype(pack)::value, decltype(threads_of_row)::value, T, D>
                    <<<blocks, threads, 0, device.stream()>>>(x, starts);
              });
  });
  check_launch("norm's gradient");
}

}  // namespace ferry::kernels::cuda
