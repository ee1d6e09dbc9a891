#include "kernels/activation.h"

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/functions.h"

namespace ferry::kernels::FERRY_KERNELS_TARGET {

// Activation functions and their derivatives, on sixteen elements.

/// The value and derivative of a function of one number.
struct Slope {
  Float value, slope;
};

/// 0.5 x (1 + erf(x / sqrt(2))).
struct Gelu {
  FERRY_INLINE Slope operator()(Float x) const {
    const Float phi = 0.5F * (1.0F + erf(x * 0.70710678F));
    return {x * phi, phi + x * 0.39894228F * exp(-0.5F * x * x)};
  }
};

/// 0.5 x (1 + tanh(u)) with u = sqrt(2/π) (x + 0.044715 x³), which is x · sigmoid(2u).
struct GeluTanh {
  FERRY_INLINE Slope operator()(Float x) const {
    constexpr float kRoot = 2 * 0.79788456F, kCube = 0.044715F;
    const Float square = x * x;
    const Float s = sigmoid(x * (kRoot + kRoot * kCube * square));
    const Float inner = kRoot + 3 * kRoot * kCube * square;
    return {x * s, s + x * s * (1.0F - s) * inner};
  }
};

struct Relu {
  FERRY_INLINE Slope operator()(Float x) const {
    return {at_least(x, 0.0F), x > 0 ? all(1.0F) : Float{}};
  }
};

struct SquaredRelu {
  FERRY_INLINE Slope operator()(Float x) const {
    const Float positive = at_least(x, 0.0F);
    return {positive * positive, 2.0F * positive};
  }
};

/// x > 0: p x² + x / 2; otherwise n (e^min(x, -1e-6) - 1 - x) + x / 2.
struct Xielu {
  static constexpr float kBeta = 0.5F, kEdge = -1e-6F;
  float p, n;  // p = softplus(alpha_p), n = 1/2 + softplus(alpha_n)

  FERRY_INLINE static Float curve(Float x) { return exp_less_one(at_most(x, kEdge)) - x; }
  FERRY_INLINE Slope operator()(Float x) const {
    const Float power = x < kEdge ? exp(at_most(x, kEdge)) : Float{};
    return {(x > 0 ? p * x * x : n * curve(x)) + kBeta * x,
            (x > 0 ? 2.0F * p * x : n * (power - 1.0F)) + kBeta};
  }
};

/// The value of a function of gate and up, and its partial derivatives.
struct GatedSlope {
  Float value, gate, up;
};

struct Swiglu {
  FERRY_INLINE GatedSlope operator()(Float gate, Float up) const {
    const Float s = sigmoid(gate), silu = gate * s;
    return {silu * up, up * (s + silu * (1.0F - s)), silu};
  }
};

struct QuickGeglu {
  FERRY_INLINE GatedSlope operator()(Float gate, Float up) const {
    constexpr float kScale = 1.702F;
    const Float s = sigmoid(kScale * gate), quick = gate * s;
    return {quick * up, up * (s + kScale * quick * (1.0F - s)), quick};
  }
};

/// The function of a clamped gate and a clamped up, to which a number is added. Where one is
/// clamped, the result does not depend on it. NaN stays NaN.
template <typename Function>
struct Limited {
  Function function;
  float clamp, offset;

  FERRY_INLINE GatedSlope operator()(Float gate, Float up) const {
    const Float inside = at_least(at_most(up, clamp), -clamp);
    const GatedSlope y = function(at_most(gate, clamp), inside + offset);
    const Float up_slope = up > clamp ? Float{} : up < -clamp ? Float{} : y.up;
    return {y.value, gate > clamp ? Float{} : y.gate, up_slope};
  }
};

namespace {

template <typename X>
float row_scale(const X& x, int64_t row) {
  return x.row_scale ? x.row_scale[row] : 1.0F;
}

/// log(1 + e^x) of a parameter.
float softplus(const ConstArray& parameter) {
  const float x = load(parameter, 0, 1)[0];
  const float tail = log(1.0F + exp(all(x < 0 ? x : -x)))[0];
  return (x > 0 ? x : 0) + tail;
}
float sigmoid_of(const ConstArray& parameter) { return sigmoid(load(parameter, 0, 1))[0]; }

/// Calls f with the function object of the kind.
template <typename X, typename F>
FERRY_INLINE void with_function(const X& x, const F& f) {
  switch (x.kind) {
    case Activation::gelu:
      return f(Gelu{});
    case Activation::gelu_tanh:
      return f(GeluTanh{});
    case Activation::relu:
      return f(Relu{});
    case Activation::squared_relu:
      return f(SquaredRelu{});
    case Activation::xielu: {
      return f(Xielu{softplus(x.alpha_p), Xielu::kBeta + softplus(x.alpha_n)});
    }
    case Activation::swiglu:
    case Activation::quick_geglu:
      break;
  }
}
template <typename X, typename F>
FERRY_INLINE void with_gated_function(const X& x, const F& f) {
  const auto limited = [&](auto function) {
    if (!x.glu) return f(function);
    const float clamp = x.glu.clamp == 0 ? __builtin_inff() : x.glu.clamp;
    f(Limited<decltype(function)>{function, clamp, x.glu.offset});
  };
  if (x.kind == Activation::swiglu) return limited(Swiglu{});
  limited(QuickGeglu{});
}

template <typename T>
void forward(const Team& team, const ActivationForward& x) {
  const auto* from = static_cast<const T*>(x.x.data);
  if (is_gated(x.kind)) {
    with_gated_function(x, [&](auto function) {
      team.each(x.rows, x.width, [&](int64_t row) {
        const T* gate = from + 2 * row * x.width;
        vectors(0, x.width, [&](int64_t i, auto n) {
          const auto y = function(load(gate + i, n), load(gate + x.width + i, n));
          store(x.y, row * x.width + i, row_scale(x, row) * y.value, n);
        });
      });
    });
    return;
  }
  with_function(x, [&](auto function) {
    team.each(x.rows, x.width, [&](int64_t row) {
      const int64_t start = row * x.width;
      vectors(start, start + x.width, [&](int64_t i, auto n) {
        store(x.y, i, row_scale(x, row) * function(load(from + i, n)).value, n);
      });
    });
  });
}

template <typename T>
void backward_gated(const Team& team, const ActivationBackward& x) {
  with_gated_function(x, [&](auto function) {
    team.each(x.rows, x.width, [&](int64_t row) {
      const T* gate = static_cast<const T*>(x.x.data) + 2 * row * x.width;
      T* dx = static_cast<T*>(x.dx.data) + 2 * row * x.width;
      Float dscale{};
      vectors(0, x.width, [&](int64_t i, auto n) {
        const auto y = function(load(gate + i, n), load(gate + x.width + i, n));
        const Float gradient = load(x.dy, row * x.width + i, n);
        dscale += gradient * y.value;
        const Float scaled = row_scale(x, row) * gradient;
        store(dx + i, scaled * y.gate, n);
        store(dx + x.width + i, scaled * y.up, n);
      });
      if (x.drow_scale) x.drow_scale[row] = sum_of(dscale);
    });
  });
}

/// `parameters`: for each row the gradients by xIELU's p and n; may be null.
template <typename T>
void backward_plain(const Team& team, const ActivationBackward& x, float* parameters) {
  with_function(x, [&](auto function) {
    team.each(x.rows, x.width, [&](int64_t row) {
      const int64_t start = row * x.width;
      const T* from = static_cast<const T*>(x.x.data) + start;
      T* dx = static_cast<T*>(x.dx.data) + start;
      Float dscale{}, dp{}, dn{};
      vectors(0, x.width, [&](int64_t i, auto n) {
        const Float value = load(from + i, n), gradient = load(x.dy, start + i, n);
        const auto y = function(value);
        const Float scaled = row_scale(x, row) * gradient;
        dscale += gradient * y.value;
        if (parameters) {
          dp += value > 0 ? scaled * value * value : Float{};
          dn += value > 0 ? Float{} : scaled * Xielu::curve(value);
        }
        store(dx + i, scaled * y.slope, n);
      });
      if (x.drow_scale) x.drow_scale[row] = sum_of(dscale);
      if (parameters) {
        parameters[2 * row] = sum_of(dp);
        parameters[2 * row + 1] = sum_of(dn);
      }
    });
  });
}

/// Sets *gradient to, or adds, factor · the sum of every second element of `parts`.
void add_parameter(const Gradient& gradient, float factor, const float* parts, int64_t rows) {
  double sum = 0;
  for (int64_t row = 0; row < rows; ++row) sum += static_cast<double>(parts[2 * row]);
  const Float before = gradient.accumulate ? load(gradient.array, 0, 1) : Float{};
  store(gradient.array, 0, before + factor * static_cast<float>(sum), 1);
}

}  // namespace

void CpuKernels::run(const ActivationForward& x) {
  with_type(x.x.type, [&]<typename T>(T*) { forward<T>(team_, x); });
  if (x.rounded) run(Quantize{.rows = x.rows, .width = x.width, .x = x.y, .to = x.rounded});
}

void CpuKernels::run(const ActivationBackward& x) {
  float* parameters = x.dalpha_p ? workspace_.floats(2 * x.rows) : nullptr;
  with_type(x.x.type, [&]<typename T>(T*) {
    if (is_gated(x.kind)) return backward_gated<T>(team_, x);
    backward_plain<T>(team_, x, parameters);
  });
  if (parameters) {
    add_parameter(x.dalpha_p, sigmoid_of(x.alpha_p), parameters, x.rows);
    add_parameter(x.dalpha_n, sigmoid_of(x.alpha_n), parameters + 1, x.rows);
  }
  const int64_t width = is_gated(x.kind) ? 2 * x.width : x.width;
  if (x.rounded) run(Quantize{.rows = x.rows, .width = width, .x = x.dx, .to = x.rounded});
  if (!x.dbias) return;
  run(SumRows{.rows = x.rows, .width = width, .x = x.dx, .sum = x.dbias});
}

}  // namespace ferry::kernels::FERRY_KERNELS_TARGET
