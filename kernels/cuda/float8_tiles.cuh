// Rounding to FP8 in tiles, by row and by column at once, of numbers that are read or computed on
// the way.
#pragma once

#include <cuda_fp8.h>

#include <cfloat>

#include "kernels/cuda/launch.cuh"
#include "kernels/float8.h"

namespace ferry::kernels::cuda {

/// Magnitudes are not negative, so their bits compare like the numbers.
__device__ inline void raise(float* maximum, float value) {
  atomicMax(reinterpret_cast<int*>(maximum), __float_as_int(value));
}

/// Numbers that are not finite become NaN.
__device__ inline uint32_t code_of(float x, float factor, Float8 format) {
  if (!(fabsf(x) <= FLT_MAX)) return 0x7F;
  const float scaled = x * factor;
  return format == Float8::e4m3 ? __nv_cvt_float_to_fp8(scaled, __NV_SATFINITE, __NV_E4M3)
                                : __nv_cvt_float_to_fp8(scaled, __NV_SATFINITE, __NV_E5M2);
}

/// The same for two neighbouring numbers; the first is in the low byte.
template <Float8 format>
__device__ uint32_t codes_of(float x, float y, float factor) {
  if (!(fmaxf(fabsf(x), fabsf(y)) <= FLT_MAX) || x != x || y != y) {
    return code_of(x, factor, format) | code_of(y, factor, format) << 8;
  }
  return __nv_cvt_float2_to_fp8x2(make_float2(x * factor, y * factor), __NV_SATFINITE,
                                  format == Float8::e4m3 ? __NV_E4M3 : __NV_E5M2);
}

/// Transposes four words of four codes each.
__device__ inline void transpose(uint32_t (&w)[4]) {
  const uint32_t a = __byte_perm(w[0], w[1], 0x5140), b = __byte_perm(w[2], w[3], 0x5140);
  const uint32_t c = __byte_perm(w[0], w[1], 0x7362), d = __byte_perm(w[2], w[3], 0x7362);
  w[0] = __byte_perm(a, b, 0x5410);
  w[1] = __byte_perm(a, b, 0x7632);
  w[2] = __byte_perm(c, d, 0x5410);
  w[3] = __byte_perm(c, d, 0x7632);
}

// A block's tile. Columns of 128 codes fill cache lines, which other blocks write much later.
constexpr int kTileRows = 128, kTileColumns = 64;
constexpr int kRowWords = kTileColumns / 4 + 2;  // of codes, padded against bank conflicts
constexpr int kColumnWords = kTileRows / 4 + 1;

/// Writes a tile of codes, which shared memory has by row, along columns: each thread transposes
/// 4 x 4 codes at a time. `by_column` is shared memory.
__device__ inline void write_columns(const uint32_t* by_row, uint32_t* by_column, uint8_t* to,
                                     int64_t rows, int64_t width, int64_t first_row,
                                     int64_t first_column) {
  for (int t = threadIdx.x; t < kTileRows * kTileColumns / 16; t += kThreads) {
    const int row = t / (kTileColumns / 4) * 4, word = t % (kTileColumns / 4);
    uint32_t codes[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) codes[i] = by_row[(row + i) * kRowWords + word];
    transpose(codes);
#pragma unroll
    for (int i = 0; i < 4; ++i) by_column[(word * 4 + i) * kColumnWords + row / 4] = codes[i];
  }
  __syncthreads();
  for (int t = threadIdx.x; t < kTileRows * kTileColumns / 16; t += kThreads) {
    const int column = t / (kTileRows / 16), part = t % (kTileRows / 16);
    if (first_column + column >= width || first_row + part * 16 >= rows) continue;
    const uint32_t* const from = by_column + column * kColumnWords + part * 4;
    uint8_t* const place = to + (first_column + column) * rows + first_row + part * 16;
    store_16_bytes(reinterpret_cast<uint4*>(place), make_uint4(from[0], from[1], from[2], from[3]));
  }
}

/// `width` columns are read, and each of the source's parts gives as many: part p's are columns
/// p · width and on of the result.
template <Float8 format, typename Source>
__device__ void quantize_tile(int64_t rows, int64_t width, const Float8Output& to,
                              const Source& source) {
  constexpr int kRowPacks = kTileColumns / kPack, kSteps = kTileRows * kRowPacks / kThreads;
  constexpr int kParts = Source::kParts;
  constexpr int kAtOnce = kSteps / kParts;  // reads, so that registers suffice for three blocks
  __shared__ uint32_t by_row[kParts][kTileRows * kRowWords], by_column[kTileColumns * kColumnWords];
  __shared__ float scratch[32];
  const int64_t first_row = int64_t{blockIdx.y} * kTileRows;
  const int64_t first_column = int64_t{blockIdx.x} * kTileColumns;
  const int column = static_cast<int>(threadIdx.x) % kRowPacks * kPack;
  const auto row_of = [](int step) {
    return (static_cast<int>(threadIdx.x) + step * kThreads) / kRowPacks;
  };
  const auto is_inside = [&](int step) {
    return first_row + row_of(step) < rows && first_column + column < width;
  };
  const float factor = to.scale->factor;
  float most = 0;
#pragma unroll
  for (int first = 0; first < kSteps; first += kAtOnce) {
    typename Source::Read read[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (!is_inside(first + i)) continue;
      read[i] = source.read(first_row + row_of(first + i), first_column + column);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int step = first + i;
      const int64_t row = first_row + row_of(step);
      Pack<kPack> values[kParts]{};
      if (is_inside(step)) source.values(read[i], row, first_column + column, values);
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const float* const v = values[part].v;
#pragma unroll
        for (int j = 0; j < kPack; ++j) most = fmaxf(most, fabsf(v[j]));
        const auto word = [&](int j) {
          return codes_of<format>(v[j], v[j + 1], factor) |
                 codes_of<format>(v[j + 2], v[j + 3], factor) << 16;
        };
        const uint2 codes = make_uint2(word(0), word(4));
        *reinterpret_cast<uint2*>(by_row[part] + row_of(step) * kRowWords + column / 4) = codes;
        if (to.by_row == nullptr || !is_inside(step)) continue;
        const int64_t at = (row * kParts + part) * width + first_column + column;
        *reinterpret_cast<uint2*>(to.by_row + at) = codes;
      }
    }
  }
  if (to.by_column != nullptr) {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      __syncthreads();  // also before by_column is written again
      write_columns(by_row[part], by_column, to.by_column + part * width * rows, rows, width,
                    first_row, first_column);
    }
  }
  if (to.maximum == nullptr) return;
  most = block_max(most, scratch);
  if (threadIdx.x == 0 && most > 0) raise(to.maximum, most);
}

template <Float8 format, typename Source>
__global__ void __launch_bounds__(kThreads)
    quantize(int64_t rows, int64_t width, Float8Output to, Source source) {
  quantize_tile<format>(rows, width, to, source);
}

inline dim3 tiles_of(int64_t rows, int64_t width) {
  return {static_cast<unsigned>(ceil_div(width, kTileColumns)),
          static_cast<unsigned>(ceil_div(rows, kTileRows))};
}

/// Whether quantize_tiles() can round [rows, width].
inline bool is_tiled(int64_t rows, int64_t width, std::initializer_list<const void*> sources,
                     const Float8Output& to) {
  return is_packed(sources, {}) && is_packed({to.by_row, to.by_column}, {}) &&
         (to.by_column == nullptr || rows % kFloat8Multiple == 0) && width % kFloat8Multiple == 0 &&
         rows <= int64_t{65535} * kTileRows;
}

/// Source has read(row, column) and values(), which gives the kPack numbers from there on of each
/// of its kParts parts.
template <typename Source>
void quantize_tiles(Device& device, int64_t rows, int64_t width, const Float8Output& to,
                    const Source& source) {
  const auto kernel =
      to.format == Float8::e4m3 ? quantize<Float8::e4m3, Source> : quantize<Float8::e5m2, Source>;
  kernel<<<tiles_of(rows, width), kThreads, 0, device.stream()>>>(rows, width, to, source);
  check_launch("rounding to 8 bits");
}

}  // namespace ferry::kernels::cuda
