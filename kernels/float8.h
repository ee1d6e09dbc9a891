// 8-bit floating-point numbers with one scale a tensor, and matrix products of them.
//
// Source: Micikevicius et al. 2022 (FP8 formats for deep learning); Transformer Engine
// transformer_engine/common/recipe for how scales follow from maxima.
#pragma once

#include <cstdint>

#include "kernels/array.h"

namespace ferry::kernels {

/// e4m3 has no infinities and ends at 448, e5m2 ends at 57344. Both have subnormal numbers.
enum class Float8 : uint8_t { e4m3, e5m2 };

constexpr float greatest(Float8 format) { return format == Float8::e4m3 ? 448.0F : 57344.0F; }

/// The factor of a tensor's elements before rounding, and its reciprocal. In device memory, like
/// all pointers of this header. GPU products read the reciprocal from the start of the struct and
/// need it aligned.
struct alignas(16) Float8Scale {
  float inverse = 1, factor = 1;
};

/// *maximum = the largest magnitude in x, 0 if x is empty; NaNs are ignored.
struct AbsoluteMaximum {
  int64_t count = 0;
  ConstArray x;
  float* maximum = nullptr;
};

/// Current scaling: the scale that maps *maximum to the largest number of the format; 1 if *maximum
/// is zero or infinite, and the largest fp32 number if it would be infinite.
struct CurrentScale {
  Float8 format = Float8::e4m3;
  const float* maximum = nullptr;
  Float8Scale* scale = nullptr;
};

/// Delayed scaling of `count` tensors of one format: previous steps determine the scales of the
/// next. Pushes each maximum into its tensor's history, drops the oldest entry, computes the scale
/// from the newest or the largest entry, and resets maxima to zero. A tensor with a zero maximum is
/// left unchanged, and so is a scale if the number is infinite.
struct DelayedScales {
  int64_t count = 0;
  int64_t length = 1;  // of a history
  Float8 format = Float8::e4m3;
  float share = 1;  // the part of the format's range to use: 2 to the minus margin
  bool takes_newest = true;
  float* maximum = nullptr;      // [count]
  float* history = nullptr;      // [length, count], the newest first
  Float8Scale* scale = nullptr;  // [count]
};

/// Where x [rows, width], times the scale and rounded to the format, ties to even, is stored.
/// Saturates at the format's largest number; NaNs stay and infinities become NaN, so that a
/// diverged run is detected as with other types.
struct Float8Output {
  Float8 format = Float8::e4m3;
  const Float8Scale* scale = nullptr;
  uint8_t* by_row = nullptr;     // [rows, width]; may be null
  uint8_t* by_column = nullptr;  // [width, rows]; may be null
  float* maximum = nullptr;      // raised to the largest magnitude in x; may be null

  constexpr explicit operator bool() const noexcept {
    return by_row != nullptr || by_column != nullptr;
  }
};

struct Quantize {
  int64_t rows = 0, width = 0;
  ConstArray x;
  Float8Output to;
};

/// The value of an element is its code's value divided by the scale.
struct Float8Matrix {
  const uint8_t* data = nullptr;
  Float8 format = Float8::e4m3;
  const Float8Scale* scale = nullptr;
};

/// c = a·bᵀ, or c += a·bᵀ: [m, k] times [n, k] transposed, the form that GPUs support: all rows run
/// along k. c is bf16 or f32, and rounded once. Sizes are multiples of kFloat8Multiple, factors are
/// aligned to as many bytes, and at least one of them is e4m3.
struct Float8Matmul {
  int64_t m = 0, n = 0, k = 0;
  Float8Matrix a;
  Float8Matrix b;
  Array c;
  bool accumulate = false;
  /// Intermediate sums may have fewer bits than fp32 if that is faster.
  bool fast = false;
  ConstArray bias = {};  // n elements of bf16 added to each row; not with `accumulate`
};

constexpr int64_t kFloat8Multiple = 16;

}  // namespace ferry::kernels
