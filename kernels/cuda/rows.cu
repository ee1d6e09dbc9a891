// Rows of tables: embeddings, and tokens on their way to experts and back.
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

/// What the ids are sorted by: rows that are another rank's come last.
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

// Gradients of an embedding's rows: tokens are sorted by row, and each part of so many of them has
// its sums from one block of threads. In real text a few rows have a great share of all tokens, and
// go on through many parts: what each of these has is added up afterwards, in their order.
constexpr int kTokensOfPart = 64;
constexpr int kTogether = 8;  // rows that are read together

/// A block for each part and strip of columns. `open`: [parts, 2, width], sums of the row that a
/// part begins in the middle of, and of the one that it ends in the middle of.
template <typename T, typename D>
__global__ void add_rows(int64_t count, int64_t width, int64_t rows, const int32_t* keys,
                         const int32_t* numbers, const T* dy, D* dtable, float* open) {
  __shared__ int32_t key[kTokensOfPart + 2], number[kTokensOfPart];  // a key before, and one behind
  const int64_t begin = int64_t{blockIdx.x} * kTokensOfPart;
  const int tokens = static_cast<int>(min(int64_t{kTokensOfPart}, count - begin));
  for (int i = threadIdx.x; i < tokens + 2; i += blockDim.x) {
    const int64_t place = begin + i - 1;
    key[i] = place >= 0 && place < count ? keys[place] : -1;
    if (i < tokens) number[i] = numbers[begin + i];
  }
  __syncthreads();
  const int64_t column = blockIdx.y * int64_t{blockDim.x} + threadIdx.x;
  if (column >= width) return;
  float* const begun_before = open + 2 * blockIdx.x * width + column;
  float* const goes_on = begun_before + width;
  float sum = 0;
  for (int first = 0; first < tokens; first += kTogether) {
    float value[kTogether], before[kTogether];
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      const int i = min(first + j, tokens - 1), row = key[i + 1];
      value[j] = row < rows ? to_float(dy[number[i] * width + column]) : 0.0F;
      const bool begins = row < rows && key[i] != row;
      before[j] = begins ? to_float(dtable[row * width + column]) : 0.0F;
    }
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      const int i = first + j;
      if (i >= tokens || key[i + 1] >= rows) break;  // rows of other ranks are last
      const int row = key[i + 1];
      sum = key[i] == row ? sum + value[j] : before[j] + value[j];
      const bool ends = key[i + 2] != row;
      if (!ends && i + 1 < tokens) continue;
      if (key[0] == row) {
        *begun_before = sum;
      } else if (ends) {
        dtable[row * width + column] = from_float<D>(sum);
      } else {
        *goes_on = sum;
      }
    }
  }
}

/// A block for each part and strip of columns: where a row begins in the part and goes on behind
/// it, it is what all its parts have.
template <typename D>
__global__ void add_open_rows(int64_t count, int64_t width, int64_t rows, const int32_t* keys,
                              const float* open, D* dtable) {
  const int64_t begin = int64_t{blockIdx.x} * kTokensOfPart, end = begin + kTokensOfPart;
  if (end >= count) return;
  const int32_t row = keys[end - 1];
  if (row >= rows || keys[end] != row || (begin > 0 && keys[begin - 1] == row)) return;
  const int64_t column = blockIdx.y * int64_t{blockDim.x} + threadIdx.x;
  if (column >= width) return;
  const auto has_row = [&](int64_t part) {
    return part * kTokensOfPart < count && keys[part * kTokensOfPart] == row;
  };
  const auto sum_of = [&](int64_t part, int which) {
    return open[(2 * part + which) * width + column];
  };
  int64_t part = blockIdx.x;
  float sum = sum_of(part++, 1);
  for (; has_row(part + kTogether - 1); part += kTogether) {
    float value[kTogether];
#pragma unroll
    for (int j = 0; j < kTogether; ++j) value[j] = sum_of(part + j, 0);
#pragma unroll
    for (const float x : value) sum += x;
  }
  for (; has_row(part); ++part) sum += sum_of(part, 0);
  dtable[row * width + column] = from_float<D>(sum);
}

/// A warp copies a row, so that nothing is divided for each element.
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

/// A warp copies a row to all places that it goes to.
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
    for (int64_t j = 0; j < places; ++j) store<W>(y + to[j] * width + i, value);
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
      const auto value = load<W>(x + row_of[token * chosen + j] * width + column);
#pragma unroll
      for (int k = 0; k < W; ++k) sum.v[k] += value.v[k];
    }
    store<W>(y + i, sum);
  }
};

struct AddNumbers {
  const int32_t* index;
  int64_t terms, divisor;
  const float* x;
  float* y;
  __device__ void operator()(int64_t i) const {
    float sum = 0;
    for (int64_t j = 0; j < terms; ++j) sum += x[index[i * terms + j] / divisor];
    y[i] = sum;
  }
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
  const int64_t parts = ceil_div(x.count, kTokensOfPart);
  const auto fill = [&](int32_t* keys, int32_t* numbers) {
    each(device, x.count, RowKeys{x.ids, x.first, x.rows, keys, numbers}, "embedding's rows");
  };
  const Sorted sorted = sort_pairs(device, x.count, x.rows + 1, fill, 2 * parts * x.width);
  constexpr unsigned kColumns = 128;
  const dim3 grid(static_cast<unsigned>(parts), static_cast<unsigned>(ceil_div(x.width, kColumns)));
  with_types(x.dy.type, x.dtable.type, [&]<typename T, typename D>(T*, D*) {
    add_rows<<<grid, kColumns, 0, device.stream()>>>(x.count, x.width, x.rows, sorted.keys,
                                                     sorted.numbers, elements<T>(x.dy),
                                                     elements<D>(x.dtable), sorted.more);
    add_open_rows<<<grid, kColumns, 0, device.stream()>>>(x.count, x.width, x.rows, sorted.keys,
                                                          sorted.more, elements<D>(x.dtable));
  });
  check_launch("embedding's gradient");
}

void run(Device& device, const GatherRows& x) {
  if (x.rows == 0 || x.width == 0) return;
  const bool scatters = x.row_of != nullptr && x.divisor > 1;
  const int64_t warps = scatters ? x.rows / x.divisor : x.rows;
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
  each(device, x.count, AddNumbers{x.index, x.terms, x.divisor, x.x, x.y}, "gathering numbers");
}

}  // namespace ferry::kernels::cuda
