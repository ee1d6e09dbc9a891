// The functions of activation.h (kernels/) and their derivatives, on sixteen elements.
#pragma once

#include "kernels/activation.h"
#include "kernels/cpu/functions.h"

namespace ferry::kernels::FERRY_KERNELS_TARGET {

/// A function of one number and its derivative.
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

/// A function of gate and up and its derivatives by them.
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

}  // namespace ferry::kernels::FERRY_KERNELS_TARGET
