// Activation functions of an MLP.
#pragma once

#include "kernels/float8.h"

namespace ferry::kernels {

enum class Activation : uint8_t {
  swiglu,        // silu(gate) · up; rows are [gate, up]
  gelu,          // with the error function
  gelu_tanh,     // Hendrycks and Gimpel 2016, the approximation
  squared_relu,  // So et al. 2021
  quick_geglu,   // gate · sigmoid(1.702 gate) · up
  xielu,         // Huang and Schlag 2024
  relu,
};

constexpr bool is_gated(Activation kind) {
  return kind == Activation::swiglu || kind == Activation::quick_geglu;
}

/// What gated functions do to gate and up before they are multiplied.
struct GluSettings {
  float clamp = 0;   // the gate is at most, up within plus and minus this; 0: as they are
  float offset = 0;  // added to up

  constexpr explicit operator bool() const noexcept { return clamp != 0 || offset != 0; }
};

/// y = activation(x), each row times its scale if there are any. x has rows of `width` elements, or
/// of 2 · width when gated. Computed in fp32.
struct ActivationForward {
  Activation kind = Activation::swiglu;
  int64_t rows = 0, width = 0;
  ConstArray x;
  Array y;
  GluSettings glu = {};
  const float* row_scale = nullptr;       // [rows]: expert probabilities
  ConstArray alpha_p = {}, alpha_n = {};  // xielu's parameters, one element each
  Float8Output rounded = {};              // of y, as Quantize rounds it
  bool only_rounded = false;              // y is undefined afterwards
};

/// Gradients: dx and drow_scale are set.
struct ActivationBackward {
  Activation kind = Activation::swiglu;
  int64_t rows = 0, width = 0;
  ConstArray x;
  ConstArray dy;
  Array dx;  // may be x
  GluSettings glu = {};
  const float* row_scale = nullptr;
  float* drow_scale = nullptr;
  ConstArray alpha_p = {}, alpha_n = {};
  Gradient dalpha_p = {}, dalpha_n = {};
  Gradient dbias = {};        // gradient of a bias added to x: the sum of dx over rows
  Float8Output rounded = {};  // of dx, as Quantize rounds it
  bool only_rounded = false;  // dx is undefined afterwards
};

}  // namespace ferry::kernels
