// Rows of tables: embeddings, and tokens moved to experts and back.
#include <cub/device/device_radix_sort.cuh>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/sorted.cuh"

namespace ferry::kernels::cuda {

namespace {

template <typename T, typename Y>
struct LookUp {
  const int32_t* ids;
  const T* table;
  Y* y;
  int64_t width, first, rows;
  bool accumulate;
  template <int W>
  __device__ void at(int64_t i) const {
    const int64_t row = ids[i / width] - first, column = i % width;
    Pack<W> value{};
    if (row >= 0 && row < rows) value = load<W>(table + row * width + column);
    if (accumulate) {
      const auto before = load<W>(y + i);
#pragma unroll
      for (int j = 0; j < W; ++j) value.v[j] += before.v[j];
    }
    store<W>(y + i, value);
  }
};

/// Sort keys of ids: rows of other ranks come last.
struct RowKeys {
  const int32_t* ids;
  int64_t first, rows;
  int32_t *keys, *numbers;
  __device__ void operator()(int64_t i) const {
    const int64_t row = ids[i] - first;
    keys[i] = static_cast<int32_t>(row >= 0 && row < rows ? row : rows);
    numbers[i] = static_cast<int32_t>(i);
  }
};

// Gradients of an embedding's rows: tokens are sorted by row, and each block sums a part of this
// many tokens. In real text a few rows have a large share of all tokens and span many parts, whose
// sums are added afterwards, in order.
constexpr int kTokensOfPart = 64;
constexpr int kThreadsOfPart = 128;

/// One block per part and strip of columns, W per thread. `open`: [parts, 2, width], the sums of
/// the row continued from the previous part, and of the row continued in the next part; undefined
/// if there is no such row.
template <int W, typename T, typename D>
__global__ void add_rows(int64_t count, int64_t width, int32_t rows, const int32_t* keys,
                         const int32_t* numbers, const T* dy, D* dtable, float* open) {
  constexpr int kTogether = W > 1 ? 4 : 8;  // tokens whose gradients are loaded at once
  __shared__ int32_t key[kTokensOfPart + 2],
      number[kTokensOfPart];  // and the keys before and after
  const int64_t begin = int64_t{blockIdx.x} * kTokensOfPart;
  const int tokens = static_cast<int>(min(int64_t{kTokensOfPart}, count - begin));
  for (int i = threadIdx.x; i < tokens + 2; i += blockDim.x) {
    const int64_t place = begin + i - 1;
    key[i] = place >= 0 && place < count ? keys[place] : -1;
    if (i < tokens) number[i] = numbers[begin + i];
  }
  __syncthreads();
  const int64_t column = (blockIdx.y * int64_t{blockDim.x} + threadIdx.x) * W;
  if (column >= width) return;
  float* const went_on = open + 2 * int64_t{blockIdx.x} * width + column;
  float* const goes_on = went_on + width;
  Pack<W> sum{};
  // Rows of other ranks are last.
  for (int first = 0; first < tokens && key[first + 1] < rows; first += kTogether) {
    StoredPack<W, T> value[kTogether];
    StoredPack<W, D> before[kTogether];
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      const int i = min(first + j, tokens - 1);
      value[j] = load_stored<W>(dy + number[i] * width + column);
      if (key[i + 1] < rows && key[i] != key[i + 1]) {
        before[j] = load_stored<W>(dtable + key[i + 1] * width + column);
      }
    }
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      const int i = first + j, row = i < tokens ? key[i + 1] : rows;
      if (row >= rows) break;
      if (key[i] != row) sum = to_pack<W>(before[j]);
      const auto own = to_pack<W>(value[j]);
#pragma unroll
      for (int k = 0; k < W; ++k) sum.v[k] += own.v[k];
      const bool ends = key[i + 2] != row;
      if (!ends && i + 1 < tokens) continue;
      if (key[0] == row) {
        store<W>(went_on, sum);
      } else if (ends) {
        store<W>(dtable + row * width + column, sum);
      } else {
        store<W>(goes_on, sum);
      }
    }
  }
}

/// One block per part and strip of columns: sums all parts of a row that starts in this part and
/// continues in the next.
template <typename D>
__global__ void add_open_rows(int64_t count, int64_t width, int32_t rows, const int32_t* keys,
                              const float* open, D* dtable) {
  constexpr int kTogether = 32;  // parts whose sums are loaded at once
  const int64_t begin = int64_t{blockIdx.x} * kTokensOfPart, end = begin + kTokensOfPart;
  if (end >= count) return;
  const int32_t row = keys[end - 1];
  if (row >= rows || keys[end] != row || (begin > 0 && keys[begin - 1] == row)) return;
  int64_t last = int64_t{blockIdx.x} + 1;  // of the parts that start with the row; keys are sorted
  for (int64_t after = (count - 1) / kTokensOfPart + 1; after - last > 1;) {
    const int64_t middle = (last + after) / 2;
    (keys[middle * kTokensOfPart] == row ? last : after) = middle;
  }
  const int64_t column = blockIdx.y * int64_t{blockDim.x} + threadIdx.x;
  if (column >= width) return;
  const auto sum_of = [&](int64_t part, int which) {
    return open[(2 * part + which) * width + column];
  };
  float sum = sum_of(blockIdx.x, 1);
  int64_t part = int64_t{blockIdx.x} + 1;
  for (; part + kTogether - 1 <= last; part += kTogether) {
    float value[kTogether];
#pragma unroll
    for (int j = 0; j < kTogether; ++j) value[j] = sum_of(part + j, 0);
#pragma unroll
    for (const float x : value) sum += x;
  }
  for (; part <= last; ++part) sum += sum_of(part, 0);
  dtable[row * width + column] = from_float<D>(sum);
}

/// A warp copies a row, which avoids a division per element.
template <int W, typename T, typename Y>
__global__ void gather(int64_t rows, int64_t width, const int32_t* index, int32_t divisor,
                       const T* x, Y* y) {
  const int64_t row = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  if (row >= rows) return;
  const T* const from = x + int64_t{index[row] / divisor} * width;
  Y* const to = y + row * width;
#pragma unroll 4
  for (int64_t i = threadIdx.x % 32 * W; i < width; i += 32 * W)
    store<W>(to + i, load<W>(from + i));
}

/// A warp copies a row to all its destinations, but those that are -1.
template <int W, typename T, typename Y>
__global__ void scatter(int64_t rows, int64_t width, const int32_t* row_of, int64_t places,
                        const T* x, Y* y) {
  const int64_t row = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  if (row >= rows) return;
  const T* const from = x + row * width;
  const int32_t* const to = row_of + row * places;
  for (int64_t i = threadIdx.x % 32 * W; i < width; i += 32 * W) {
    const auto value = load<W>(from + i);
#pragma unroll 4
    for (int64_t j = 0; j < places; ++j) {
      if (to[j] >= 0) store<W>(y + to[j] * width + i, value);
    }
  }
}

template <typename T, typename Y>
struct Combine {
  const int32_t* row_of;
  int64_t chosen, width;
  const T* x;
  Y* y;
  bool accumulate;
  template <int W>
  __device__ void at(int64_t i) const {
    const int64_t token = i / width, column = i % width;
    Pack<W> sum{};
    if (accumulate) sum = load<W>(y + i);
    for (int64_t j = 0; j < chosen; ++j) {
      const int64_t row = row_of[token * chosen + j];
      if (row < 0) continue;
      const auto value = load<W>(x + row * width + column);
#pragma unroll
      for (int k = 0; k < W; ++k) sum.v[k] += value.v[k];
    }
    store<W>(y + i, sum);
  }
};

struct GatherEach {
  const int32_t* index;
  const float* x;
  float* y;
  __device__ void operator()(int64_t i) const { y[i] = index[i] < 0 ? 0 : x[index[i]]; }
};

}  // namespace

void run(Device& device, const EmbeddingForward& x) {
  with_types(x.table.type, x.y.type, [&]<typename T, typename Y>(T*, Y*) {
    each_pack(device, x.count * x.width, is_packed({x.table.data, x.y.data}, {x.width}),
              LookUp<T, Y>{x.ids, elements<T>(x.table), elements<Y>(x.y), x.width, x.first, x.rows,
                           x.accumulate},
              "embedding");
  });
}

void run(Device& device, const EmbeddingBackward& x) {
  if (x.count == 0 || x.width == 0) return;
  const auto rows = static_cast<int32_t>(x.rows);
  const int64_t parts = ceil_div(x.count, kTokensOfPart);
  const auto fill = [&](int32_t* keys, int32_t* numbers) {
    each(device, x.count, RowKeys{x.ids, x.first, x.rows, keys, numbers}, "embedding's rows");
  };
  const Sorted sorted = sort_pairs(device, x.count, x.rows + 1, fill, 2 * parts * x.width);
  const auto grid = [&](int columns) {
    return dim3(static_cast<unsigned>(parts),
                static_cast<unsigned>(ceil_div(x.width, columns * kThreadsOfPart)));
  };
  with_types(x.dy.type, x.dtable.type, [&]<typename T, typename D>(T*, D*) {
    auto* const table = elements<D>(x.dtable);
    with_pack(is_packed({x.dy.data, x.dtable.data}, {x.width}), [&](auto pack) {
      constexpr int kColumns = decltype(pack)::value;
      add_rows<kColumns><<<grid(kColumns), kThreadsOfPart, 0, device.stream()>>>(
          x.count, x.width, rows, sorted.keys, sorted.numbers, elements<T>(x.dy), table,
          sorted.more);
    });
    add_open_rows<<<grid(1), kThreadsOfPart, 0, device.stream()>>>(x.count, x.width, rows,
                                                                   sorted.keys, sorted.more, table);
  });
  check_launch("embedding's gradient");
}

void run(Device& device, const GatherRows& x) {
  if (x.rows == 0 || x.width == 0) return;
  const bool scatters = x.row_of != nullptr && x.divisor > 1;
  const int64_t warps = scatters ? x.tokens : x.rows;
  const auto blocks = static_cast<unsigned>(ceil_div(warps, kThreads / 32));
  with_types(x.x.type, x.y.type, [&]<typename T, typename Y>(T*, Y*) {
    with_pack(is_packed({x.x.data, x.y.data}, {x.width}), [&](auto pack) {
      constexpr int kWidth = decltype(pack)::value;
      const auto* const from = elements<T>(x.x);
      auto* const to = elements<Y>(x.y);
      if (scatters) {
        scatter<kWidth><<<blocks, kThreads, 0, device.stream()>>>(warps, x.width, x.row_of,
                                                                  x.divisor, from, to);
      } else {
        gather<kWidth><<<blocks, kThreads, 0, device.stream()>>>(
            warps, x.width, x.index, static_cast<int32_t>(x.divisor), from, to);
      }
    });
  });
  check_launch("gathering rows");
}

void run(Device& device, const CombineRows& x) {
  with_types(x.x.type, x.y.type, [&]<typename T, typename Y>(T*, Y*) {
    each_pack(device, x.tokens * x.width, is_packed({x.x.data, x.y.data}, {x.width}),
              Combine<T, Y>{x.row_of, x.chosen, x.width, elements<T>(x.x), elements<Y>(x.y),
                            x.accumulate},
              "combining rows");
  });
}

void run(Device& device, const GatherNumbers& x) {
  each(device, x.count, GatherEach{x.index, x.x, x.y}, "gathering numbers");
}

}  // namespace ferry::kernels::cuda
