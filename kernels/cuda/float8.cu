// Rounding to 8-bit floating-point numbers, and scales.
#include <cuda_fp8.h>

#include <cfloat>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operations.h"

namespace ferry::kernels::cuda {

namespace {

/// Magnitudes are not negative, so their bits compare like the numbers.
__device__ void raise(float* maximum, float value) {
  atomicMax(reinterpret_cast<int*>(maximum), __float_as_int(value));
}

template <int W, typename T>
__global__ void greatest_magnitude(int64_t count, const T* x, float* maximum) {
  __shared__ float scratch[32];
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x * W;
  float most = 0;
  for (int64_t i = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * W; i < count;
       i += stride) {
    const auto value = load<W>(x + i);
#pragma unroll
    for (int j = 0; j < W; ++j) most = fmaxf(most, fabsf(value.v[j]));
  }
  most = block_max(most, scratch);
  if (threadIdx.x == 0 && most > 0) raise(maximum, most);
}

void raise_maximum(Device& device, int64_t count, const ConstArray& x, float* maximum) {
  if (count == 0) return;
  with_type(x.type, [&]<typename T>(T*) {
    with_pack(is_packed({x.data}, {count}), [&](auto w) {
      constexpr int kWidth = w;
      const unsigned grid = grid_of(device, ceil_div(count, int64_t{kThreads} * kWidth));
      greatest_magnitude<kWidth>
          <<<grid, kThreads, 0, device.stream()>>>(count, elements<T>(x), maximum);
    });
  });
  check_launch("greatest magnitude");
}

__device__ Float8Scale scale_of(float factor) {
  const float finite = fminf(factor, FLT_MAX);
  return {__frcp_rn(finite), finite};
}

__device__ bool is_positive(float number) { return number > 0 && number <= FLT_MAX; }

struct ScaleByMaximum {
  CurrentScale x;
  float most;
  __device__ void operator()(int64_t) const {
    const float maximum = *x.maximum;
    *x.scale = is_positive(maximum) ? scale_of(__fdiv_rn(most, maximum)) : Float8Scale{1, 1};
  }
};

struct MoveHistory {
  DelayedScales x;
  float most;
  __device__ void operator()(int64_t i) const {
    const float newest = x.maximum[i];
    if (newest == 0) return;
    float number = newest;
    for (int64_t age = x.length - 1; age > 0; --age) {
      const float older = x.history[(age - 1) * x.count + i];
      x.history[age * x.count + i] = older;
      if (!x.takes_newest && older > number) number = older;
    }
    x.history[i] = newest;
    x.maximum[i] = 0;
    if (is_positive(number)) x.scale[i] = scale_of(__fdiv_rn(most, number));
  }
};

template <Float8 format>
constexpr __nv_fp8_interpretation_t kInterpretation =
    format == Float8::e4m3 ? __NV_E4M3 : __NV_E5M2;

/// Numbers that are not finite become NaN.
template <Float8 format>
__device__ uint32_t code_of(float x, float factor) {
  if (!(fabsf(x) <= FLT_MAX)) return 0x7F;
  return __nv_cvt_float_to_fp8(x * factor, __NV_SATFINITE, kInterpretation<format>);
}

/// The same for two neighbouring numbers; the first is in the low byte.
template <Float8 format>
__device__ uint32_t codes_of(float x, float y, float factor) {
  if (!(fmaxf(fabsf(x), fabsf(y)) <= FLT_MAX) || x != x || y != y) {
    return code_of<format>(x, factor) | code_of<format>(y, factor) << 8;
  }
  return __nv_cvt_float2_to_fp8x2(make_float2(x * factor, y * factor), __NV_SATFINITE,
                                  kInterpretation<format>);
}

constexpr int kTile = 64;                 // rows and columns per block
constexpr int kRowWords = kTile / 4 + 2;  // of codes, padded against bank conflicts
constexpr int kColumnWords = kTile / 4 + 1;

/// Transposes four words of four codes each.
__device__ void transpose(uint32_t (&w)[4]) {
  const uint32_t a = __byte_perm(w[0], w[1], 0x5140), b = __byte_perm(w[2], w[3], 0x5140);
  const uint32_t c = __byte_perm(w[0], w[1], 0x7362), d = __byte_perm(w[2], w[3], 0x7362);
  w[0] = __byte_perm(a, b, 0x5410);
  w[1] = __byte_perm(a, b, 0x7632);
  w[2] = __byte_perm(c, d, 0x5410);
  w[3] = __byte_perm(c, d, 0x7632);
}

/// Sizes are multiples of 16. Codes are written along rows directly, and along columns through
/// shared memory, in which each thread transposes 4 x 4 blocks.
template <Float8 format, typename T>
__global__ void __launch_bounds__(kThreads) quantize_tile(Quantize x) {
  __shared__ uint32_t by_row[kTile * kRowWords], by_column[kTile * kColumnWords];
  __shared__ float scratch[32];
  const int t = threadIdx.x;
  const int64_t first_row = int64_t{blockIdx.y} * kTile, first_column = int64_t{blockIdx.x} * kTile;
  const float factor = x.scale->factor;
  float most = 0;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = t / 8 + half * (kTile / 2), column = t % 8 * kPack;
    const int64_t at = (first_row + row) * x.width + first_column + column;
    uint2 codes = make_uint2(0, 0);
    if (first_row + row < x.rows && first_column + column < x.width) {
      const auto value = load<kPack>(static_cast<const T*>(x.x.data) + at);
#pragma unroll
      for (int j = 0; j < kPack; ++j) most = fmaxf(most, fabsf(value.v[j]));
      const auto word = [&](int j) {
        return codes_of<format>(value.v[j], value.v[j + 1], factor) |
               codes_of<format>(value.v[j + 2], value.v[j + 3], factor) << 16;
      };
      codes = make_uint2(word(0), word(4));
      if (x.y != nullptr) *reinterpret_cast<uint2*>(x.y + at) = codes;
    }
    *reinterpret_cast<uint2*>(by_row + row * kRowWords + column / 4) = codes;
  }
  __syncthreads();
  if (x.transposed != nullptr) {
    const int row = t / 16 * 4, word = t % 16;
    uint32_t codes[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) codes[i] = by_row[(row + i) * kRowWords + word];
    transpose(codes);
#pragma unroll
    for (int i = 0; i < 4; ++i) by_column[(word * 4 + i) * kColumnWords + row / 4] = codes[i];
    __syncthreads();
    const int column = t / 4, part = t % 4;
    if (first_column + column < x.width && first_row + part * 16 < x.rows) {
      const uint32_t* const from = by_column + column * kColumnWords + part * 4;
      uint8_t* const to = x.transposed + (first_column + column) * x.rows + first_row + part * 16;
      *reinterpret_cast<uint4*>(to) = make_uint4(from[0], from[1], from[2], from[3]);
    }
  }
  if (x.maximum == nullptr) return;
  most = block_max(most, scratch);
  if (t == 0 && most > 0) raise(x.maximum, most);
}

template <Float8 format, typename T>
struct QuantizeElement {
  Quantize x;
  __device__ void operator()(int64_t i) const {
    const auto code = static_cast<uint8_t>(
        code_of<format>(to_float(static_cast<const T*>(x.x.data)[i]), x.scale->factor));
    if (x.y != nullptr) x.y[i] = code;
    if (x.transposed != nullptr) x.transposed[i % x.width * x.rows + i / x.width] = code;
  }
};

template <Float8 format, typename T>
void quantize(Device& device, const Quantize& x) {
  const bool tiles = is_packed({x.x.data, x.y, x.transposed}, {x.width}) &&
                     x.rows % kFloat8Multiple == 0 && x.width % kFloat8Multiple == 0 &&
                     x.rows <= int64_t{65535} * kTile;
  if (tiles) {
    const dim3 grid(static_cast<unsigned>(ceil_div(x.width, kTile)),
                    static_cast<unsigned>(ceil_div(x.rows, kTile)));
    quantize_tile<format, T><<<grid, kThreads, 0, device.stream()>>>(x);
    return check_launch("rounding to 8 bits");
  }
  if (x.maximum != nullptr) raise_maximum(device, x.rows * x.width, x.x, x.maximum);
  each(device, x.rows * x.width, QuantizeElement<format, T>{x}, "rounding to 8 bits");
}

}  // namespace

void run(Device& device, const AbsoluteMaximum& x) {
  check(cudaMemsetAsync(x.maximum, 0, sizeof(float), device.stream()), "clearing");
  raise_maximum(device, x.count, x.x, x.maximum);
}

void run(Device& device, const CurrentScale& x) {
  each(device, 1, ScaleByMaximum{x, greatest(x.format)}, "scale");
}

void run(Device& device, const DelayedScales& x) {
  each(device, x.count, MoveHistory{x, greatest(x.format) * x.share}, "delayed scales");
}

void run(Device& device, const Quantize& x) {
  if (x.rows == 0 || x.width == 0) return;
  with_type(x.x.type, [&]<typename T>(T*) {
    if (x.format == Float8::e4m3) {
      quantize<Float8::e4m3, T>(device, x);
    } else {
      quantize<Float8::e5m2, T>(device, x);
    }
  });
}

}  // namespace ferry::kernels::cuda
