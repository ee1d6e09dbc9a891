// Products of tiles by one warp, with the same layout over threads for every type.
//
// A warp's tile has 16 rows and N columns. Thread t holds, of every 8 columns j, the elements
//   acc[j][0], acc[j][1]: row t / 4,     columns 8 j + 2 (t % 4) and the next one
//   acc[j][2], acc[j][3]: row t / 4 + 8, the same columns
// the layout of the tensor core instruction mma.m16n8k16; fp32, which has no such instruction of
// full precision, uses the same layout, so that code between products is shared.
#pragma once

#include "kernels/cuda/launch.cuh"

namespace ferry::kernels::cuda {

template <int N>
using Tile = float[N / 8][4];

template <int N>
__device__ inline void clear(Tile<N>& tile) {
#pragma unroll
  for (auto& each : tile) each[0] = each[1] = each[2] = each[3] = 0;
}

template <typename T>
struct Instruction;  // of 16-bit types
template <>
struct Instruction<bf16> {
  static __device__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
};
template <>
struct Instruction<half> {
  static __device__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
};

__device__ inline uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

/// Loads four blocks of 8 rows of 16 bytes; thread t provides the address of a row of block t / 8.
__device__ inline void load_blocks(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
__device__ inline void load_turned_blocks(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

/// Rows of `a` and `b` are in shared memory, `stride` elements apart (padded_stride); `depth` is a
/// multiple of 16.
template <typename T>
struct Products {
  static constexpr int kColumns = 64;  // of a tile of scores
  /// A stride that places the 16-byte blocks of rows in different banks.
  static constexpr int kPadding = 8;

  /// Scores are in units of log2(e), so that powers are of two.
  static constexpr float kUnit = kLog2e;
  static __device__ float power(float x) { return power_of_two(x); }

  /// acc += a · bᵀ: 16 rows of `a`, N rows of `b`.
  template <int N>
  static __device__ void of_rows(Tile<N>& acc, const T* a, int a_stride, const T* b, int b_stride,
                                 int depth) {
    const int lane = threadIdx.x % 32;
    // Blocks of a: rows 0-7 and 8-15 of depths 0-7, the same of depths 8-15; of b: rows 0-7 of
    // both depths, then rows 8-15.
    const T* a_row = a + (lane % 16) * a_stride + lane / 16 * 8;
    const T* b_row = b + (lane / 16 * 8 + lane % 8) * b_stride + lane / 8 % 2 * 8;
    for (int k = 0; k < depth; k += 16) {
      uint32_t x[4], y[4];
      load_blocks(x, a_row + k);
#pragma unroll
      for (int j = 0; j < N / 16; ++j) {
        load_blocks(y, b_row + 16 * j * b_stride + k);
        Instruction<T>::mma(acc[2 * j], x, y[0], y[1]);
        Instruction<T>::mma(acc[2 * j + 1], x, y[2], y[3]);
      }
    }
  }

  /// acc += p · b: K rows of `b`, of which the first `columns` columns are used.
  template <int K, int N>
  static __device__ void of_columns(Tile<N>& acc, const Tile<K>& p, const T* b, int b_stride,
                                    int columns) {
    const int lane = threadIdx.x % 32;
    const T* b_row = b + (lane % 16) * b_stride + lane / 16 * 8;
#pragma unroll
    for (int k = 0; k < K / 16; ++k) {
      const auto &left = p[2 * k], &right = p[2 * k + 1];
      const uint32_t x[4] = {pair(left[0], left[1], T()), pair(left[2], left[3], T()),
                             pair(right[0], right[1], T()), pair(right[2], right[3], T())};
#pragma unroll
      for (int j = 0; j < N / 16; ++j) {
        if (16 * j >= columns) break;
        uint32_t y[4];
        load_turned_blocks(y, b_row + 16 * k * b_stride + 16 * j);
        Instruction<T>::mma(acc[2 * j], x, y[0], y[1]);
        Instruction<T>::mma(acc[2 * j + 1], x, y[2], y[3]);
      }
    }
  }
};

template <>
struct Products<float> {
  static constexpr int kColumns = 32;
  static constexpr int kPadding = 4;
  static constexpr float kUnit = 1;
  static __device__ float power(float x) { return expf(x); }

  template <int N>
  static __device__ void of_rows(Tile<N>& acc, const float* a, int a_stride, const float* b,
                                 int b_stride, int depth) {
    const int lane = threadIdx.x % 32;
    const float* a_row = a + lane / 4 * a_stride;
    const float* b_row = b + 2 * (lane % 4) * b_stride;
    const auto four = [](const float* p) { return *reinterpret_cast<const float4*>(p); };
    const auto add = [](float& sum, const float4& x, const float4& y) {
      sum = fmaf(x.x, y.x, sum);
      sum = fmaf(x.y, y.y, sum);
      sum = fmaf(x.z, y.z, sum);
      sum = fmaf(x.w, y.w, sum);
    };
    for (int k = 0; k < depth; k += 4) {
      const float4 x0 = four(a_row + k), x1 = four(a_row + 8 * a_stride + k);
#pragma unroll
      for (int j = 0; j < N / 8; ++j) {
        const float4 y0 = four(b_row + 8 * j * b_stride + k);
        const float4 y1 = four(b_row + (8 * j + 1) * b_stride + k);
        add(acc[j][0], x0, y0);
        add(acc[j][1], x0, y1);
        add(acc[j][2], x1, y0);
        add(acc[j][3], x1, y1);
      }
    }
  }

  template <int K, int N>
  static __device__ void of_columns(Tile<N>& acc, const Tile<K>& p, const float* b, int b_stride,
                                    int columns) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      // The element of column k is in the one of the row's four threads that holds this column.
      const int holder = lane / 4 * 4 + k % 8 / 2;
      const float x0 = __shfl_sync(0xffffffffU, p[k / 8][k % 2], holder);
      const float x1 = __shfl_sync(0xffffffffU, p[k / 8][2 + k % 2], holder);
      const float* b_row = b + k * b_stride + 2 * (lane % 4);
#pragma unroll
      for (int j = 0; j < N / 8; ++j) {
        if (8 * j >= columns) break;
        const float2 y = *reinterpret_cast<const float2*>(b_row + 8 * j);
        acc[j][0] = fmaf(x0, y.x, acc[j][0]);
        acc[j][1] = fmaf(x0, y.y, acc[j][1]);
        acc[j][2] = fmaf(x1, y.x, acc[j][2]);
        acc[j][3] = fmaf(x1, y.y, acc[j][3]);
      }
    }
  }
};

__host__ __device__ inline int padded_depth(int64_t dim) {
  return static_cast<int>((dim + 15) / 16 * 16);
}
template <typename T>
__host__ __device__ int padded_stride(int64_t dim) {
  return padded_depth(dim) + Products<T>::kPadding;
}

/// Copies rows to shared memory, by all threads of the block: `count` of `rows` rows of `dim`
/// elements, padded with zeros. The rows of `from` start at element `start`.
template <typename T>
__device__ void load_rows(T* to, int stride, const ConstArray& from, int64_t start,
                          int64_t row_stride, int rows, int64_t count, int dim) {
  constexpr int kBlock = 16 / sizeof(T);
  const T* same = static_cast<const T*>(from.data) + start;
  constexpr Type kType = sizeof(T) == 4            ? Type::f32
                         : std::is_same_v<T, bf16> ? Type::bf16
                                                   : Type::f16;
  const bool packed =
      from.type == kType && reinterpret_cast<uintptr_t>(same) % 16 == 0 && row_stride % kBlock == 0;
  const int blocks = padded_depth(dim) / kBlock;
  for (int i = static_cast<int>(threadIdx.x); i < rows * blocks;
       i += static_cast<int>(blockDim.x)) {
    const int row = i / blocks, column = i % blocks * kBlock;
    T* const at = to + row * stride + column;
    if (row < count && packed && column + kBlock <= dim) {
      *reinterpret_cast<uint4*>(at) =
          *reinterpret_cast<const uint4*>(same + row * row_stride + column);
      continue;
    }
    for (int j = 0; j < kBlock; ++j) {
      const bool is_there = row < count && column + j < dim;
      at[j] = is_there ? from_float<T>(element(from, start + row * row_stride + column + j))
                       : from_float<T>(0.0F);
    }
  }
}

/// Two neighbouring elements of a tile; the second may be past the row's end.
__device__ inline void store_pair(const Array& to, int64_t at, float a, float b, bool has_b,
                                  bool accumulate) {
  if (accumulate) {
    a += element(to, at);
    if (has_b) b += element(to, at + 1);
  }
  set_element(to, at, a);
  if (has_b) set_element(to, at + 1, b);
}

}  // namespace ferry::kernels::cuda
