// Rounding to 8-bit floating-point numbers, and scales.
#include "kernels/cuda/float8_tiles.cuh"
#include "kernels/cuda/operations.h"

namespace ferry::kernels::cuda {

namespace {

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

/// What is rounded as it is.
template <typename T>
struct Elements {
  static constexpr int kParts = 1;
  const T* x;
  int64_t width;

  struct Read {
    StoredPack<kPack, T> x;
  };
  __device__ Read read(int64_t row, int64_t column) const {
    return {load_stored<kPack>(x + row * width + column)};
  }
  __device__ void values(const Read& read, int64_t, int64_t, Pack<kPack> (&values)[kParts]) const {
    values[0] = to_pack<kPack>(read.x);
  }
};

template <typename T>
struct QuantizeElement {
  Quantize x;
  __device__ void operator()(int64_t i) const {
    const auto code = static_cast<uint8_t>(
        code_of(to_float(static_cast<const T*>(x.x.data)[i]), x.to.scale->factor, x.to.format));
    if (x.to.by_row != nullptr) x.to.by_row[i] = code;
    if (x.to.by_column != nullptr) x.to.by_column[i % x.width * x.rows + i / x.width] = code;
  }
};

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
    if (is_tiled(x.rows, x.width, {x.x.data}, x.to)) {
      return quantize_tiles(device, x.rows, x.width, x.to, Elements<T>{elements<T>(x.x), x.width});
    }
    if (x.to.maximum != nullptr) raise_maximum(device, x.rows * x.width, x.x, x.to.maximum);
    each(device, x.rows * x.width, QuantizeElement<T>{x}, "rounding to 8 bits");
  });
}

}  // namespace ferry::kernels::cuda
