// Matrix products in tiles of 64 x 64 with plain multiplications in fp32: for what the library, or
// for grouped products the tensor cores, do not support.
#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/products/products.h"

namespace ferry::kernels::cuda {

namespace {

constexpr int kTile = 64, kDepth = 16;

/// A matrix with arbitrary strides.
template <typename T>
struct Matrix {
  const T* data;
  int64_t row_stride, column_stride;
  __device__ float at(int64_t row, int64_t column) const {
    return to_float(data[row * row_stride + column * column_stride]);
  }
};

/// The tile of c at (first_row, first_column): c = a·b + bias, or c += a·b. Each of 256 threads
/// computes 4 x 4 elements.
template <typename T, typename C>
__device__ void multiply_tile(const Matrix<T>& a, const Matrix<T>& b, const T* bias, C* c,
                              int64_t m, int64_t n, int64_t k, int64_t first_row,
                              int64_t first_column, bool accumulate) {
  __shared__ float left[kDepth][kTile + 4], right[kDepth][kTile + 4];
  const int thread = threadIdx.x, own_row = thread / 16 * 4, own_column = thread % 16 * 4;
  float sum[4][4] = {};
  for (int64_t step = 0; step < k; step += kDepth) {
    __syncthreads();
    for (int i = thread; i < kTile * kDepth; i += 256) {
      // Neighbouring threads read neighbouring elements, whatever the matrix's layout.
      const bool by_depth = a.column_stride == 1;
      const int depth = by_depth ? i % kDepth : i / kTile, row = by_depth ? i / kDepth : i % kTile;
      const bool is_there = first_row + row < m && step + depth < k;
      left[depth][row] = is_there ? a.at(first_row + row, step + depth) : 0.0F;
    }
    for (int i = thread; i < kTile * kDepth; i += 256) {
      const bool by_depth = b.row_stride == 1;
      const int depth = by_depth ? i % kDepth : i / kTile;
      const int column = by_depth ? i / kDepth : i % kTile;
      const bool is_there = first_column + column < n && step + depth < k;
      right[depth][column] = is_there ? b.at(step + depth, first_column + column) : 0.0F;
    }
    __syncthreads();
#pragma unroll
    for (int depth = 0; depth < kDepth; ++depth) {
      float x[4], y[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        x[i] = left[depth][own_row + i];
        y[i] = right[depth][own_column + i];
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[i][j] += x[i] * y[j];
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int64_t row = first_row + own_row + i;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int64_t column = first_column + own_column + j;
      if (row >= m || column >= n) continue;
      C* const to = c + row * n + column;
      float value = sum[i][j];
      if (bias) value += to_float(bias[column]);
      if (accumulate) value += to_float(*to);
      *to = from_float<C>(value);
    }
  }
}

template <typename T, typename C>
__global__ void matmul(Matrix<T> a, Matrix<T> b, const T* bias, C* c, int64_t m, int64_t n,
                       int64_t k, bool accumulate) {
  multiply_tile(a, b, bias, c, m, n, k, blockIdx.x * int64_t{kTile}, blockIdx.y * int64_t{kTile},
                accumulate);
}

/// Per-group arguments of one launch, as many as fit in kernel arguments.
constexpr int kGroups = 128;
struct GroupPointers {
  const void* b[kGroups];
  void* c[kGroups];
};

/// Tiles are numbered across the groups' rows along x, because y has at most 65535 blocks; a block
/// looks up its group.
template <typename T, typename C>
__global__ void grouped_matmul(GroupedMatmul x, GroupPointers pointers, int first_group,
                               int groups) {
  int64_t tile = blockIdx.x;
  int group = 0;
  int64_t begin = 0, rows = 0;
  for (;; ++group) {
    if (group == groups) return;
    begin = x.offsets[first_group + group];
    rows = x.offsets[first_group + group + 1] - begin;
    const int64_t tiles = (rows + kTile - 1) / kTile;
    if (tile < tiles) break;
    tile -= tiles;
  }
  const Matrix<T> a{static_cast<const T*>(x.a.data) + begin * x.k, x.k, 1};
  const Matrix<T> b{static_cast<const T*>(pointers.b[group]), x.b_transposed ? 1 : x.n,
                    x.b_transposed ? x.k : 1};
  multiply_tile(a, b, static_cast<const T*>(nullptr), static_cast<C*>(x.c.data) + begin * x.n, rows,
                x.n, x.k, tile * kTile, blockIdx.y * int64_t{kTile}, false);
}

template <typename T, typename C>
__global__ void grouped_gradient(GroupedMatmulGradient x, GroupPointers pointers, int first_group) {
  const int group = static_cast<int>(blockIdx.z);
  const int64_t begin = x.offsets[first_group + group];
  const int64_t rows = x.offsets[first_group + group + 1] - begin;
  if (rows == 0 && x.accumulate) return;
  const Matrix<T> a{static_cast<const T*>(x.a.data) + begin * x.m, 1, x.m};
  const Matrix<T> b{static_cast<const T*>(x.b.data) + begin * x.n, x.n, 1};
  multiply_tile(a, b, static_cast<const T*>(nullptr), static_cast<C*>(pointers.c[group]), x.m, x.n,
                rows, blockIdx.y * int64_t{kTile}, blockIdx.x * int64_t{kTile}, x.accumulate);
}

unsigned tiles_of(int64_t size) { return static_cast<unsigned>(ceil_div(size, kTile)); }

}  // namespace

void run_in_tiles(Device& device, const Matmul& x) {
  with_types(x.a.type, x.c.type, [&]<typename T, typename C>(T*, C*) {
    const Matrix<T> a{elements<T>(x.a), x.a_transposed ? 1 : x.k, x.a_transposed ? x.m : 1};
    const Matrix<T> b{elements<T>(x.b), x.b_transposed ? 1 : x.n, x.b_transposed ? x.k : 1};
    matmul<<<dim3(tiles_of(x.m), tiles_of(x.n)), 256, 0, device.stream()>>>(
        a, b, elements<T>(x.bias), elements<C>(x.c), x.m, x.n, x.k, x.accumulate);
  });
  check_launch("product");
}

void run_in_tiles(Device& device, const GroupedMatmul& x) {
  if (x.rows == 0 || x.n == 0) return;
  for (size_t first = 0; first < x.b.size(); first += kGroups) {
    const auto groups = static_cast<int>(std::min<size_t>(kGroups, x.b.size() - first));
    GroupPointers pointers{};
    for (int i = 0; i < groups; ++i) pointers.b[i] = x.b[first + static_cast<size_t>(i)].data;
    const dim3 grid(tiles_of(x.rows) + static_cast<unsigned>(groups), tiles_of(x.n));
    with_types(x.a.type, x.c.type, [&]<typename T, typename C>(T*, C*) {
      grouped_matmul<T, C>
          <<<grid, 256, 0, device.stream()>>>(x, pointers, static_cast<int>(first), groups);
    });
    check_launch("grouped product");
  }
}

void run_in_tiles(Device& device, const GroupedMatmulGradient& x) {
  if ((x.rows == 0 && x.accumulate) || x.n == 0 || x.m == 0 || x.c.empty()) return;
  for (size_t first = 0; first < x.c.size(); first += kGroups) {
    const auto groups = static_cast<int>(std::min<size_t>(kGroups, x.c.size() - first));
    GroupPointers pointers{};
    for (int i = 0; i < groups; ++i) pointers.c[i] = x.c[first + static_cast<size_t>(i)].data;
    const dim3 grid(tiles_of(x.n), tiles_of(x.m), static_cast<unsigned>(groups));
    with_types(x.a.type, x.c.front().type, [&]<typename T, typename C>(T*, C*) {
      grouped_gradient<T, C>
          <<<grid, 256, 0, device.stream()>>>(x, pointers, static_cast<int>(first));
    });
    check_launch("grouped gradient");
  }
}

}  // namespace ferry::kernels::cuda
