// Gradients of RMSNorm and LayerNorm: in one pass with those of the parameters for rows of packs,
// otherwise in several.
#include "kernels/cuda/norm/gradient_rows.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/sums.cuh"

namespace ferry::kernels::cuda {

namespace {

/// Sums over a row of g = dy · weight and of g · x̂; divided by its width they are means.
struct RowSums {
  float g = 0, product = 0;
};
/// A thread's sums over rows for the parameters' gradients: of dy · x̂ and of dy.
template <int W>
struct ParameterSums {
  Pack<W> weight{}, bias{};
};

template <int W, typename T, typename D>
__device__ void add_to_sums(const Columns<W, T, D>& own, const Pack<W>& weight,
                            const Statistics& row, RowSums& sums, ParameterSums<W>* parameters) {
  const auto x = to_pack<W>(own.x);
  const auto dy = to_pack<W>(own.dy);
#pragma unroll
  for (int j = 0; j < W; ++j) {
    const float normal = row.normal(x.v[j]), g = dy.v[j] * weight.v[j];
    sums.g += g;
    sums.product += g * normal;
    if (!parameters) continue;
    parameters->weight.v[j] += dy.v[j] * normal;
    parameters->bias.v[j] += dy.v[j];
  }
}

/// dx = inverse · (g - mean of g - x̂ · mean of g · x̂); for RMSNorm without the mean of g.
template <int W, typename T, typename D>
__device__ void store_gradient(const NormBackward& n, int64_t at, const Columns<W, T, D>& own,
                               const Pack<W>& weight, const Statistics& row, const RowSums& sums) {
  const auto x = to_pack<W>(own.x);
  const auto dy = to_pack<W>(own.dy);
  const float by_width = 1.0F / static_cast<float>(n.width);
  const float mean_g = n.rms ? 0.0F : sums.g * by_width, mean_product = sums.product * by_width;
  Pack<W> dx{};
  if (n.accumulate) dx = to_pack<W>(own.before);
#pragma unroll
  for (int j = 0; j < W; ++j) {
    const float normal = row.normal(x.v[j]);
    dx.v[j] += row.inverse * (dy.v[j] * weight.v[j] - mean_g - normal * mean_product);
  }
  store<W>(static_cast<D*>(n.dx.data) + at, dx);
}

/// Rows of any width, read twice; the parameters' gradients are computed separately.
template <int W, int ThreadsOfRow, typename T, typename D>
__global__ void norm_backward(NormBackward x, RowStarts starts) {
  __shared__ float scratch[2][32];
  const int64_t row = own_row<ThreadsOfRow>();
  if (row >= x.rows * x.heads) return;
  const int64_t start = starts(row);
  const auto statistics = Statistics::of(x, row);
  const int64_t begin = threadIdx.x % ThreadsOfRow * W, step = ThreadsOfRow * W;
  Columns<W, T, D> own;
  RowSums sums;
  for (int64_t i = begin; i < x.width; i += step) {
    own.load(x, start + i);
    const auto weight = weights<W>(x.weight, x.one_plus_weight, i);
    add_to_sums<W, T, D>(own, weight, statistics, sums, nullptr);
  }
  sums = {row_sum<ThreadsOfRow>(sums.g, scratch[0]),
          row_sum<ThreadsOfRow>(sums.product, scratch[1])};
  for (int64_t i = begin; i < x.width; i += step) {
    own.load(x, start + i);
    const auto weight = weights<W>(x.weight, x.one_plus_weight, i);
    store_gradient<W, T, D>(x, start + i, own, weight, statistics, sums);
  }
}

/// Rows of packs, with the block's sums for the parameters' gradients, so that x and dy are read
/// once. Each thread has kBlockPacks packs of every row: with fewer, the overhead per row and warp
/// (sums, addresses, barrier) would dominate. `dweight`, `dbias`: [blocks, width]; `dbias` may be
/// null.
template <int ROWS, typename T, typename D>
__global__ void __launch_bounds__(kThreads, 1)
    norm_backward_blocks(const __grid_constant__ NormBackward x,
                         const __grid_constant__ RowStarts starts, int64_t rows_of_block,
                         float* dweight, float* dbias) {
  constexpr int kWarps = kThreads / 32, K = kBlockPacks;
  extern __shared__ uint4 shared[];
  __shared__ float scratch[2][2][kWarps];
  const int64_t rows = x.rows * x.heads, first = blockIdx.x * rows_of_block;
  const int64_t end = first + rows_of_block < rows ? first + rows_of_block : rows;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
  using Ahead = RowsAhead<ROWS, T, D>;
  Ahead ahead(x, starts, shared);
  const auto column = [](int k) { return Ahead::column(k); };
  for (int i = 0; i < ROWS; ++i) ahead.ask(i, first + i, end);
  Pack<kPack> weight[K]{};
  ParameterSums<kPack> parameters[K];
#pragma unroll
  for (int k = 0; k < K; ++k) {
    if (column(k) < x.width) weight[k] = weights<kPack>(x.weight, x.one_plus_weight, column(k));
  }
  int place = 0;
  for (int64_t row = first; row < end; ++row) {
    Columns<kPack, T, D> own[K]{};
    const Statistics statistics = ahead.take(place, own);
    RowSums sums;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      add_to_sums<kPack, T, D>(own[k], weight[k], statistics, sums, &parameters[k]);
    }
    // Rows alternate between two scratch areas, so one barrier per row suffices.
    auto& slot = scratch[row % 2];
    sums = {warp_sum(sums.g), warp_sum(sums.product)};
    if (lane == 0) {
      slot[0][warp] = sums.g;
      slot[1][warp] = sums.product;
    }
    __syncthreads();
    ahead.ask(place, row + ROWS, end);
    place = (place + 1) % ROWS;
    sums = {warp_sum<kWarps>(lane % kWarps < warps ? slot[0][lane % kWarps] : 0.0F),
            warp_sum<kWarps>(lane % kWarps < warps ? slot[1][lane % kWarps] : 0.0F)};
    const int64_t start = starts(row);
#pragma unroll
    for (int k = 0; k < K; ++k) {
      if (column(k) >= x.width) continue;
      store_gradient<kPack, T, D>(x, start + column(k), own[k], weight[k], statistics, sums);
    }
  }
#pragma unroll
  for (int k = 0; k < K; ++k) {
    if (column(k) >= x.width) continue;
    store<kPack>(dweight + blockIdx.x * x.width + column(k), parameters[k].weight);
    if (dbias) store<kPack>(dbias + blockIdx.x * x.width + column(k), parameters[k].bias);
  }
}

/// The same for narrow rows, whose blocks have fewer threads if each has many sums.
constexpr int narrow_threads(int k) { return k <= 2 ? kThreads : kThreads / 2; }
constexpr int narrow_blocks_of_multiprocessor(int k) { return k == 1 || k == 3 ? 3 : 2; }

/// The same for narrow rows: a row is processed by a warp or a part of one, with K packs per
/// thread, and a block has many rows at once.
template <int ThreadsOfRow, int K, typename T, typename D>
__global__ void __launch_bounds__(narrow_threads(K), narrow_blocks_of_multiprocessor(K))
    norm_backward_narrow(NormBackward x, RowStarts starts, int64_t rows_of_block, float* dweight,
                         float* dbias) {
  constexpr int kRows = narrow_threads(K) / ThreadsOfRow, kWidth = K * ThreadsOfRow * kPack;
  __shared__ float sums_of[kRows][kWidth];
  const int64_t rows = x.rows * x.heads, first = blockIdx.x * rows_of_block;
  const int64_t end = first + rows_of_block < rows ? first + rows_of_block : rows;
  const int place = threadIdx.x / ThreadsOfRow, width = static_cast<int>(x.width);
  const auto column = [&](int k) {
    return (k * ThreadsOfRow + static_cast<int>(threadIdx.x) % ThreadsOfRow) * kPack;
  };
  Pack<kPack> weight[K]{};
  ParameterSums<kPack> parameters[K];
#pragma unroll
  for (int k = 0; k < K; ++k) {
    if (column(k) < width) weight[k] = weights<kPack>(x.weight, x.one_plus_weight, column(k));
  }
  for (int64_t row = first + place; row - place < end; row += kRows) {
    const bool is_there = row < end;
    const int64_t start = is_there ? starts(row) : 0;
    Columns<kPack, T, D> own[K]{};
    Statistics statistics{};
    if (is_there) statistics = Statistics::of(x, row);
#pragma unroll
    for (int k = 0; k < K; ++k) {
      if (is_there && column(k) < width) own[k].load(x, start + column(k));
    }
    RowSums sums;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      add_to_sums<kPack, T, D>(own[k], weight[k], statistics, sums, &parameters[k]);
    }
    sums = {warp_sum<ThreadsOfRow>(sums.g), warp_sum<ThreadsOfRow>(sums.product)};
#pragma unroll
    for (int k = 0; k < K; ++k) {
      if (!is_there || column(k) >= width) continue;
      store_gradient<kPack, T, D>(x, start + column(k), own[k], weight[k], statistics, sums);
    }
  }
  const auto write = [&](auto sum_of, float* to) {
    __syncthreads();
#pragma unroll
    for (int k = 0; k < K; ++k) {
#pragma unroll
      for (int j = 0; j < kPack; ++j) sums_of[place][column(k) + j] = sum_of(k).v[j];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < width; i += narrow_threads(K)) {
      float total = 0;
#pragma unroll
      for (int row = 0; row < kRows; ++row) total += sums_of[row][i];
      to[blockIdx.x * int64_t{width} + i] = total;
    }
  };
  write([&](int k) { return parameters[k].weight; }, dweight);
  if (dbias) write([&](int k) { return parameters[k].bias; }, dbias);
}

template <typename T, typename D>
struct WeightGradient {
  const T* x;
  const D* dy;
  const float *mean, *inverse;  // mean: null for RMSNorm
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

/// Returns false if the rows are too wide for the kernels that process blocks of rows, or not in
/// packs.
bool run_in_blocks(Device& device, const NormBackward& x, const RowStarts& starts, bool packed) {
  const int64_t rows = x.rows * x.heads;
  if (rows == 0 || !packed || x.width > kBlockPacks * kPack * kThreads) return false;
  bool is_run = true;
  with_types(x.x.type, x.dy.type, [&]<typename T, typename D>(T*, D*) {
    // No more blocks than run at once, because each writes as many sums as a row has columns. The
    // order of the parameters' gradient sums therefore also depends on the number of
    // multiprocessors.
    const auto launch = [&](auto* kernel, unsigned threads, unsigned bytes, int64_t least_rows) {
      const int64_t rows_of_block =
          std::max(least_rows, ceil_div(rows, blocks_at_once(device, kernel, threads, bytes)));
      const int64_t blocks = ceil_div(rows, rows_of_block);
      float* const dweight = device.floats(2 * blocks * x.width);
      float* const dbias = x.dbias ? dweight + blocks * x.width : nullptr;
      kernel<<<static_cast<unsigned>(blocks), threads, bytes, device.stream()>>>(
          x, starts, rows_of_block, dweight, dbias);
      add_parts_of_columns(device, blocks, x.width, {dweight, x.dweight}, {dbias, x.dbias});
    };
    const auto narrow = [&](auto* kernel, int k) { launch(kernel, narrow_threads(k), 0, 64); };
    const auto by_blocks = [&]<int ROWS>(std::integral_constant<int, ROWS>) {
      using Ahead = RowsAhead<ROWS, T, D>;
      constexpr unsigned kDeclared = 256;
      const unsigned threads = threads_of_block(x.width, kBlockPacks);
      const unsigned bytes = Ahead::bytes(threads);
      const unsigned most = static_cast<unsigned>(device.shared_memory()) - kDeclared;
      if (bytes > most) return false;
      const auto kernel = norm_backward_blocks<ROWS, T, D>;
      allow_shared_memory(kernel, std::min(most, Ahead::bytes(kThreads)));
      launch(kernel, threads, bytes, 8);
      return true;
    };
    const int64_t packs = x.width / kPack;
    if (packs <= 8) {
      narrow(norm_backward_narrow<8, 1, T, D>, 1);
    } else if (packs <= 16) {
      narrow(norm_backward_narrow<16, 1, T, D>, 1);
    } else if (packs <= 32) {
      narrow(norm_backward_narrow<32, 1, T, D>, 1);
    } else if (packs <= 2 * 32) {
      narrow(norm_backward_narrow<32, 2, T, D>, 2);
    } else if (packs <= 3 * 32) {
      narrow(norm_backward_narrow<32, 3, T, D>, 3);
    } else if (packs <= 4 * 32) {
      narrow(norm_backward_narrow<32, 4, T, D>, 4);
    } else {  // as many rows ahead as fit
      is_run = by_blocks(std::integral_constant<int, 2>()) ||
               by_blocks(std::integral_constant<int, 1>());
    }
  });
  return is_run;
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
    // Computes the parameters' gradients first, because dx may alias dy.
    add_columns(device, rows, x.width, packed, x.dweight,
                WeightGradient<T, D>{from, dy, x.rms ? nullptr : x.mean, x.inverse, starts});
    if (x.dbias) {
      add_columns(device, rows, x.width, packed, x.dbias, BiasGradient<D>{dy, starts});
    }
    if (rows == 0) return;
    with_rows(rows, x.width, packed, [&](auto pack, auto threads_of_row, unsigned blocks) {
      norm_backward<decltype(pack)::value, decltype(threads_of_row)::value, T, D>
          <<<blocks, kThreads, 0, device.stream()>>>(x, starts);
    });
  });
  check_launch("norm's gradient");
}

}  // namespace ferry::kernels::cuda
