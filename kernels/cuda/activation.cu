#include <algorithm>

#include "kernels/cuda/activation_functions.cuh"
#include "kernels/cuda/float8_tiles.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/sums.cuh"

namespace ferry::kernels::cuda {

namespace {

template <typename T, typename Function>
struct PlainForward {
  const T* x;
  T* y;
  int64_t width;
  const float* row_scale;
  Function function;
  template <int W>
  __device__ void at(int64_t i) const {
    auto value = load<W>(x + i);
    const float scale = row_scale ? row_scale[i / width] : 1.0F;
#pragma unroll
    for (int j = 0; j < W; ++j) value.v[j] = scale * function(value.v[j]).value;
    store<W>(y + i, value);
  }
};

template <typename T, typename Function>
struct GatedForward {
  const T* x;
  T* y;
  int64_t width;
  const float* row_scale;
  Function function;
  template <int W>
  __device__ void at(int64_t i) const {
    const int64_t row = i / width;
    const T* const gate = x + i + row * width;  // rows of x are twice as wide
    auto value = load<W>(gate);
    const auto up = load<W>(gate + width);
    const float scale = row_scale ? row_scale[row] : 1.0F;
#pragma unroll
    for (int j = 0; j < W; ++j) value.v[j] = scale * function(value.v[j], up.v[j]).value;
    store<W>(y + i, value);
  }
};

/// Gated functions and their gradients, rounded to FP8 as they are computed: by way of T, with the
/// codes that Quantize gives of the array, which is written if it is needed.
template <typename T, typename Function>
struct GatedValues {
  static constexpr int kParts = 1;
  const T* x;
  T* y;  // may be null
  int64_t width;
  const float* row_scale;
  Function function;

  struct Read {
    StoredPack<kPack, T> gate, up;
  };
  __device__ Read read(int64_t row, int64_t column) const {
    const T* const gate = x + 2 * row * width + column;
    return {load_stored<kPack>(gate), load_stored<kPack>(gate + width)};
  }
  __device__ void values(const Read& read, int64_t row, int64_t column,
                         Pack<kPack> (&values)[kParts]) const {
    const auto gate = to_pack<kPack>(read.gate), up = to_pack<kPack>(read.up);
    const float scale = row_scale ? row_scale[row] : 1.0F;
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      values[0].v[j] = to_float(from_float<T>(scale * function(gate.v[j], up.v[j]).value));
    }
    if (y != nullptr) store(y + row * width + column, values[0]);
  }
};

template <typename T, typename Function>
struct GatedGradients {
  static constexpr int kParts = 2;
  const T *x, *dy;
  T* dx;  // may be null
  int64_t width;
  Function function;

  struct Read {
    StoredPack<kPack, T> gate, up, dy;
  };
  __device__ Read read(int64_t row, int64_t column) const {
    const T* const gate = x + 2 * row * width + column;
    return {load_stored<kPack>(gate), load_stored<kPack>(gate + width),
            load_stored<kPack>(dy + row * width + column)};
  }
  __device__ void values(const Read& read, int64_t row, int64_t column,
                         Pack<kPack> (&values)[kParts]) const {
    const auto gate = to_pack<kPack>(read.gate), up = to_pack<kPack>(read.up);
    const auto gradient = to_pack<kPack>(read.dy);
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      const auto y = function(gate.v[j], up.v[j]);
      values[0].v[j] = to_float(from_float<T>(gradient.v[j] * y.gate));
      values[1].v[j] = to_float(from_float<T>(gradient.v[j] * y.up));
    }
    if (dx == nullptr) return;
    store(dx + 2 * row * width + column, values[0]);
    store(dx + (2 * row + 1) * width + column, values[1]);
  }
};

/// One block per row. `parameters`: for each row the sums for the gradients of xIELU's parameters;
/// may be null.
template <int W, typename T, typename Function>
__global__ void plain_backward(ActivationBackward x, Function function, float* parameters) {
  __shared__ float scratch[3][32];
  const int64_t start = blockIdx.x * x.width;
  const T* const from = static_cast<const T*>(x.x.data) + start;
  const T* const dy = static_cast<const T*>(x.dy.data) + start;
  T* const dx = static_cast<T*>(x.dx.data) + start;
  const float scale = x.row_scale ? x.row_scale[blockIdx.x] : 1.0F;
  float dscale = 0, dp = 0, dn = 0;
  for (int64_t i = threadIdx.x * W; i < x.width; i += blockDim.x * W) {
    auto value = load<W>(from + i);
    const auto gradient = load<W>(dy + i);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      const float at = value.v[j], scaled = scale * gradient.v[j];
      const auto y = function(at);
      dscale += gradient.v[j] * y.value;
      if (parameters) {
        dp += at > 0 ? scaled * at * at : 0.0F;
        dn += at > 0 ? 0.0F : scaled * Xielu::curve(at);
      }
      value.v[j] = scaled * y.slope;
    }
    store<W>(dx + i, value);
  }
  if (x.drow_scale) {
    dscale = block_sum(dscale, scratch[0]);
    if (threadIdx.x == 0) x.drow_scale[blockIdx.x] = dscale;
  }
  if (parameters) {
    dp = block_sum(dp, scratch[1]);
    dn = block_sum(dn, scratch[2]);
    if (threadIdx.x == 0) {
      parameters[2 * blockIdx.x] = dp;
      parameters[2 * blockIdx.x + 1] = dn;
    }
  }
}

/// Also rounds to FP8 by row, by way of T, and then leaves dx out if that is not asked for.
template <int W, typename T, typename Function>
__global__ void gated_backward(ActivationBackward x, Function function) {
  __shared__ float scratch[2][32];
  const int64_t row = blockIdx.x;
  const T* const gate = static_cast<const T*>(x.x.data) + 2 * row * x.width;
  const T* const dy = static_cast<const T*>(x.dy.data) + row * x.width;
  T* const dx = static_cast<T*>(x.dx.data) + 2 * row * x.width;
  const float scale = x.row_scale ? x.row_scale[row] : 1.0F;
  const float factor = x.rounded ? x.rounded.scale->factor : 0.0F;
  float dscale = 0, most = 0;
  // The codes of W numbers, which become what T stores of them.
  const auto round = [&](Pack<W>& values, int64_t column) {
    uint32_t words[(W + 3) / 4]{};
#pragma unroll
    for (int j = 0; j < W; ++j) {
      values.v[j] = to_float(from_float<T>(values.v[j]));
      most = fmaxf(most, fabsf(values.v[j]));
      words[j / 4] |= code_of(values.v[j], factor, x.rounded.format) << 8 * (j % 4);
    }
    uint8_t* const to = x.rounded.by_row + 2 * row * x.width + column;
    if constexpr (W == 1) {
      *to = static_cast<uint8_t>(words[0]);
    } else {
      *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1]);
    }
  };
  for (int64_t i = threadIdx.x * W; i < x.width; i += blockDim.x * W) {
    auto g = load<W>(gate + i), u = load<W>(gate + x.width + i);
    const auto gradient = load<W>(dy + i);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      const auto y = function(g.v[j], u.v[j]);
      dscale += gradient.v[j] * y.value;
      g.v[j] = scale * gradient.v[j] * y.gate;
      u.v[j] = scale * gradient.v[j] * y.up;
    }
    if (x.rounded) {
      round(g, i);
      round(u, x.width + i);
      if (x.only_rounded) continue;
    }
    store<W>(dx + i, g);
    store<W>(dx + x.width + i, u);
  }
  if (x.rounded.maximum) {
    most = block_max(most, scratch[0]);
    // Few rows have to raise it: the others do not wait for each other.
    if (threadIdx.x == 0 && most > *const_cast<volatile float*>(x.rounded.maximum)) {
      raise(x.rounded.maximum, most);
    }
  }
  if (!x.drow_scale) return;
  dscale = block_sum(dscale, scratch[1]);
  if (threadIdx.x == 0) x.drow_scale[row] = dscale;
}

/// *gradient = or += sigmoid(*alpha) · the sum of every second number: block 0 computes p's, block
/// 1 n's.
__global__ void add_parameter_gradients(int64_t rows, const float* parameters,
                                        ActivationBackward x) {
  __shared__ double scratch[32];
  double sum = 0;
  for (int64_t row = threadIdx.x; row < rows; row += blockDim.x) {
    sum += static_cast<double>(parameters[2 * row + blockIdx.x]);
  }
  sum = block_sum(sum, scratch);
  if (threadIdx.x != 0) return;
  const Gradient& gradient = blockIdx.x == 0 ? x.dalpha_p : x.dalpha_n;
  const float factor = sigmoid(element(blockIdx.x == 0 ? x.alpha_p : x.alpha_n, 0));
  const float before = gradient.accumulate ? element(gradient.array, 0) : 0.0F;
  set_element(gradient.array, 0, before + factor * static_cast<float>(sum));
}

/// Stores dx of one place and returns the rounded value, so that a bias gradient, the sum of dx
/// over rows, can be computed in the same pass.
template <typename T, typename Function>
struct PlainGradient {
  const T *x, *dy;
  T* dx;
  int64_t width;
  Function function;
  template <int W>
  __device__ Pack<W> at(int64_t row, int64_t column) const {
    const int64_t i = row * width + column;
    auto value = load<W>(x + i);
    const auto gradient = load<W>(dy + i);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      value.v[j] = to_float(from_float<T>(gradient.v[j] * function(value.v[j]).slope));
    }
    store<W>(dx + i, value);
    return value;
  }
};

/// Calls f with the function object of the kind.
template <typename T, typename X, typename F>
void with_plain_function(const X& x, const F& f) {
  switch (x.kind) {
    case Activation::gelu:
      return f(Gelu{});
    case Activation::gelu_tanh:
      return f(GeluTanh<T>{});
    case Activation::relu:
      return f(Relu{});
    case Activation::squared_relu:
      return f(SquaredRelu{});
    case Activation::xielu:
      return f(Xielu{x.alpha_p, x.alpha_n});
    case Activation::swiglu:
    case Activation::quick_geglu:
      break;
  }
}
template <typename T, typename X, typename F>
void with_gated_function(const X& x, const F& f) {
  const auto limited = [&](auto function) {
    if (!x.glu) return f(function);
    const float clamp = x.glu.clamp == 0 ? INFINITY : x.glu.clamp;
    f(Limited<decltype(function)>{function, clamp, x.glu.offset});
  };
  if (x.kind == Activation::swiglu) return limited(Swiglu<T>{});
  limited(QuickGeglu<T>{});
}

/// Calls f with the 16-bit type and the function object, or returns false if there are no tiles.
template <typename X, typename F>
bool with_tiles(const X& x, std::initializer_list<const void*> arrays, const F& f) {
  if (!is_gated(x.kind) || x.x.type == Type::f32 || x.rows == 0 || x.width == 0 ||
      !is_tiled(x.rows, x.width, arrays, x.rounded)) {
    return false;
  }
  with_type(x.x.type, [&]<typename T>(T* type) {
    if constexpr (!std::is_same_v<T, float>) {
      with_gated_function<T>(x, [&](auto function) { f(type, function); });
    }
  });
  return true;
}

/// Returns false if the operation has to be followed by Quantize.
bool round_on_the_way(Device& device, const ActivationForward& x) {
  return with_tiles(x, {x.x.data, x.y.data}, [&]<typename T, typename Function>(T*, Function f) {
    T* const y = x.only_rounded ? nullptr : elements<T>(x.y);
    quantize_tiles(device, x.rows, x.width, x.rounded,
                   GatedValues<T, Function>{elements<T>(x.x), y, x.width, x.row_scale, f});
  });
}

bool round_on_the_way(Device& device, const ActivationBackward& x) {
  if (x.dbias || x.row_scale || x.drow_scale) return false;
  return with_tiles(
      x, {x.x.data, x.dy.data, x.dx.data}, [&]<typename T, typename Function>(T*, Function f) {
        T* const dx = x.only_rounded ? nullptr : elements<T>(x.dx);
        quantize_tiles(
            device, x.rows, x.width, x.rounded,
            GatedGradients<T, Function>{elements<T>(x.x), elements<T>(x.dy), dx, x.width, f});
      });
}

}  // namespace

void run(Device& device, const ActivationForward& x) {
  if (x.rounded) {
    if (round_on_the_way(device, x)) return;
    ActivationForward alone = x;
    alone.rounded = {};
    run(device, alone);
    return run(device, Quantize{.rows = x.rows, .width = x.width, .x = x.y, .to = x.rounded});
  }
  const bool packed = is_packed({x.x.data, x.y.data}, {x.width});
  with_type(x.x.type, [&]<typename T>(T*) {
    const auto apply = [&](const auto& elementwise) {
      each_pack(device, x.rows * x.width, packed, elementwise, "activation");
    };
    const T* const from = elements<T>(x.x);
    T* const to = elements<T>(x.y);
    if (is_gated(x.kind)) {
      with_gated_function<T>(x, [&]<typename Function>(Function function) {
        apply(GatedForward<T, Function>{from, to, x.width, x.row_scale, function});
      });
    } else {
      with_plain_function<T>(x, [&]<typename Function>(Function function) {
        apply(PlainForward<T, Function>{from, to, x.width, x.row_scale, function});
      });
    }
  });
}

void run(Device& device, const ActivationBackward& x) {
  if (x.rounded) {
    if (round_on_the_way(device, x)) return;
    if (!is_gated(x.kind) || x.dbias || x.rounded.by_column != nullptr) {
      ActivationBackward alone = x;
      alone.rounded = {};
      run(device, alone);
      const int64_t width = is_gated(x.kind) ? 2 * x.width : x.width;
      return run(device, Quantize{.rows = x.rows, .width = width, .x = x.dx, .to = x.rounded});
    }
  }
  const bool packed = is_packed({x.x.data, x.dy.data, x.dx.data, x.rounded.by_row}, {x.width});
  if (x.dbias && (is_gated(x.kind) || x.row_scale || x.drow_scale || x.dalpha_p)) {
    ActivationBackward rest = x;
    rest.dbias = {};
    run(device, rest);
    const int64_t width = is_gated(x.kind) ? 2 * x.width : x.width;
    return run(device, SumRows{.rows = x.rows, .width = width, .x = x.dx, .sum = x.dbias});
  }
  if (x.dbias) {
    return with_type(x.x.type, [&]<typename T>(T*) {
      with_plain_function<T>(x, [&]<typename Function>(Function function) {
        add_columns(device, x.rows, x.width, packed, x.dbias,
                    PlainGradient<T, Function>{elements<T>(x.x), elements<T>(x.dy),
                                               elements<T>(x.dx), x.width, function});
      });
    });
  }
  if (x.rows == 0 || x.width == 0) return;
  const auto blocks = static_cast<unsigned>(x.rows);
  float* const parameters = x.dalpha_p ? device.floats(2 * x.rows) : nullptr;
  with_type(x.x.type, [&]<typename T>(T*) {
    with_pack(packed, [&](auto pack) {
      constexpr int kWidth = decltype(pack)::value;
      if (is_gated(x.kind)) {
        with_gated_function<T>(x, [&](auto function) {
          gated_backward<kWidth, T><<<blocks, kThreads, 0, device.stream()>>>(x, function);
        });
      } else {
        with_plain_function<T>(x, [&](auto function) {
          plain_backward<kWidth, T>
              <<<blocks, kThreads, 0, device.stream()>>>(x, function, parameters);
        });
      }
    });
  });
  if (parameters) {
    add_parameter_gradients<<<2, 1024, 0, device.stream()>>>(x.rows, parameters, x);
  }
  check_launch("activation's gradient");
}

}  // namespace ferry::kernels::cuda
