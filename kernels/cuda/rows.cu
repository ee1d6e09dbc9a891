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

/// A block of threads for each sorted place and strip of columns: the first place of a row adds all
/// of the row's tokens in their order.
template <typename T, typename D>
__global__ void add_rows(int64_t count, int64_t width, int64_t rows, const int32_t* keys,
                         const int32_t* numbers, const T* dy, D* dtable) {
  const int64_t place = blockIdx.x;
  const int32_t row = keys[place];
  if (row >= rows || (place > 0 && keys[place - 1] == row)) return;
  const int64_t column = blockIdx.y * int64_t{blockDim.x} + threadIdx.x;
  if (column >= width) return;
  float sum = to_float(dtable[row * width + column]);
  // Frequent tokens have long runs, whose rows are read together. Keys are sorted.
  constexpr int kTogether = 8;
  int64_t i = place;
  for (; i + kTogether <= count && keys[i + kTogether - 1] == row; i += kTogether) {
    float values[kTogether];
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      values[j] = to_float(dy[numbers[i + j] * width + column]);
    }
#pragma unroll
    for (const float value : values) sum += value;
  }
  for (; i < count && keys[i] == row; ++i) sum += to_float(dy[numbers[i] * width + column]);
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
  const Sorted sorted =
      sort_pairs(device, x.count, x.rows + 1, [&](int32_t* keys, int32_t* numbers) {
        each(device, x.count, RowKeys{x.ids, x.first, x.rows, keys, numbers}, "embedding's rows");
      });
  constexpr unsigned kColumns = 128;
  const dim3 grid(static_cast<unsigned>(x.count),
                  static_cast<unsigned>(ceil_div(x.width, kColumns)));
  with_types(x.dy.type, x.dtable.type, [&]<typename T, typename D>(T*, D*) {
    add_rows<<<grid, kColumns, 0, device.stream()>>>(x.count, x.width, x.rows, sorted.keys,
                                                     sorted.numbers, elements<T>(x.dy),
                                                     elements<D>(x.dtable));
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
