#include <algorithm>

#include "kernels/cuda/activation_functions.cuh"
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

template <int W, typename T, typename Function>
__global__ void gated_backward(ActivationBackward x, Function function) {
  __shared__ float scratch[32];
  const int64_t row = blockIdx.x;
  const T* const gate = static_cast<const T*>(x.x.data) + 2 * row * x.width;
  const T* const dy = static_cast<const T*>(x.dy.data) + row * x.width;
  T* const dx = static_cast<T*>(x.dx.data) + 2 * row * x.width;
  const float scale = x.row_scale ? x.row_scale[row] : 1.0F;
  float dscale = 0;
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
    store<W>(dx + i, g);
    store<W>(dx + x.width + i, u);
  }
  if (!x.drow_scale) return;
  dscale = block_sum(dscale, scratch);
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

}  // namespace

void run(Device& device, const ActivationForward& x) {
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
  const bool packed = is_packed({x.x.data, x.dy.data, x.dx.data}, {x.width});
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
