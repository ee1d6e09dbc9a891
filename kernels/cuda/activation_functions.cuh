// The functions of activation.h and their derivatives.
#pragma once

#include "kernels/activation.h"
#include "kernels/cuda/launch.cuh"

namespace ferry::kernels::cuda {

/// As exact as the type can represent.
template <typename T = float>
__device__ float sigmoid(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return 1.0F / (1.0F + expf(-x));
  } else {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(1.0F + power_of_two(-kLog2e * x)));
    return y;
  }
}

/// The value and derivative of a function of one number.
struct Slope {
  float value, slope;
};

/// 0.5 x (1 + erf(x / sqrt(2))).
struct Gelu {
  __device__ Slope operator()(float x) const {
    const float phi = 0.5F * (1.0F + erff(x * 0.70710678F));
    return {x * phi, phi + x * 0.39894228F * expf(-0.5F * x * x)};
  }
};

/// 0.5 x (1 + tanh(u)) with u = sqrt(2/π) (x + 0.044715 x³), which is x · sigmoid(2u).
template <typename T>
struct GeluTanh {
  __device__ Slope operator()(float x) const {
    constexpr float kRoot = 2 * 0.79788456F, kCube = 0.044715F;
    const float square = x * x;
    const float s = sigmoid<T>(x * (kRoot + kRoot * kCube * square));
    const float inner = kRoot + 3 * kRoot * kCube * square;
    return {x * s, s + x * s * (1.0F - s) * inner};
  }
};

struct Relu {
  __device__ Slope operator()(float x) const { return {fmaxf(x, 0.0F), x > 0 ? 1.0F : 0.0F}; }
};

struct SquaredRelu {
  __device__ Slope operator()(float x) const {
    const float positive = fmaxf(x, 0.0F);
    return {positive * positive, 2.0F * positive};
  }
};

/// log(1 + e^x).
__device__ inline float softplus(float x) { return fmaxf(x, 0.0F) + log1pf(expf(-fabsf(x))); }

/// x > 0: p x² + x / 2; otherwise n (e^min(x, -1e-6) - 1 - x) + x / 2, with p = softplus(alpha_p)
/// and n = 1/2 + softplus(alpha_n).
struct Xielu {
  static constexpr float kBeta = 0.5F, kEdge = -1e-6F;
  ConstArray alpha_p, alpha_n;

  __device__ static float curve(float x) { return expm1f(fminf(x, kEdge)) - x; }
  __device__ Slope operator()(float x) const {
    if (x > 0) {
      const float p = softplus(element(alpha_p, 0));
      return {p * x * x + kBeta * x, 2.0F * p * x + kBeta};
    }
    const float n = kBeta + softplus(element(alpha_n, 0));
    const float power = x < kEdge ? expf(x) : 0.0F;
    return {n * curve(x) + kBeta * x, n * (power - 1.0F) + kBeta};
  }
};

/// The value of a function of gate and up, and its partial derivatives.
struct GatedSlope {
  float value, gate, up;
};

template <typename T>
struct Swiglu {
  __device__ GatedSlope operator()(float gate, float up) const {
    const float s = sigmoid<T>(gate), silu = gate * s;
    return {silu * up, up * (s + silu * (1.0F - s)), silu};
  }
};

template <typename T>
struct QuickGeglu {
  __device__ GatedSlope operator()(float gate, float up) const {
    constexpr float kScale = 1.702F;
    const float s = sigmoid<T>(kScale * gate), quick = gate * s;
    return {quick * up, up * (s + kScale * quick * (1.0F - s)), quick};
  }
};

/// The function of a clamped gate and a clamped up, to which a number is added. Where one is
/// clamped, the result does not depend on it. NaN stays NaN.
template <typename Function>
struct Limited {
  Function function;
  float clamp, offset;

  __device__ GatedSlope operator()(float gate, float up) const {
    const bool gate_is_cut = gate > clamp, up_is_cut = up > clamp || up < -clamp;
    const float inside = up > clamp ? clamp : up < -clamp ? -clamp : up;
    const GatedSlope y = function(gate_is_cut ? clamp : gate, inside + offset);
    return {y.value, gate_is_cut ? 0.0F : y.gate, up_is_cut ? 0.0F : y.up};
  }
};

}  // namespace ferry::kernels::cuda
