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

/// What a tensor's elements are multiplied by before they are rounded, and its reciprocal. Lies in
/// the memory of the device, as all pointers of this header do. Products on GPUs read the
/// reciprocal where the struct begins, and want it aligned.
struct alignas(16) Float8Scale {
  float inverse = 1, factor = 1;
};

/// *maximum = the greatest magnitude of x, 0 where there is none; NaNs are passed over.
struct AbsoluteMaximum {
  int64_t count = 0;
  ConstArray x;
  float* maximum = nullptr;
};

/// Current scaling: the scale by which *maximum becomes the greatest number of the format. 1 where
/// *maximum is zero or infinite; the greatest fp32 number where it would be infinite.
struct CurrentScale {
  Float8 format = Float8::e4m3;
  const float* maximum = nullptr;
  Float8Scale* scale = nullptr;
};

/// Delayed scaling, of `count` tensors of one format at once: what they were in the steps before
/// says how the next step scales them. Each maximum moves into its tensor's history, the oldest
/// number goes, and the scale becomes that of the newest number or of the greatest; then maxima are
/// zero again. A tensor whose maximum is zero stays as it is; so does a scale where the number is
/// infinite.
struct DelayedScales {
  int64_t count = 0;
  int64_t length = 1;  // of a history
  Float8 format = Float8::e4m3;
  float share = 1;  // of the format's range that the number is scaled to: 2 to the minus margin
  bool takes_newest = true;
  float* maximum = nullptr;      // [count]
  float* history = nullptr;      // [length, count], the newest first
  Float8Scale* scale = nullptr;  // [count]
};

/// y = x times the scale, rounded to the format, ties to even. Beyond the format's greatest number
/// elements become that; NaNs stay, and infinities become NaN, so that a run that has come to them
/// is found out as it is in other types. x is [rows, width], `transposed` [width, rows].
struct Quantise {
  int64_t rows = 0, width = 0;
  Float8 format = Float8::e4m3;
  ConstArray x;
  const Float8Scale* scale = nullptr;
  uint8_t* y = nullptr;           // null: not wanted
  uint8_t* transposed = nullptr;  // null: not wanted
  float* maximum = nullptr;       // raised to the greatest magnitude of x; null: not looked for
};

/// Elements stand for their value over the scale.
struct Float8Matrix {
  const uint8_t* data = nullptr;
  Float8 format = Float8::e4m3;
  const Float8Scale* scale = nullptr;
};

/// c = a·bᵀ, or c += a·bᵀ: [m, k] times [n, k] transposed, as GPUs multiply 8-bit numbers: all rows
/// lie along k. c is bf16 or f32, and rounded once. Sizes are multiples of kFloat8Multiple,
/// factors aligned to as many bytes, and one of them at least is e4m3.
struct Float8Matmul {
  int64_t m = 0, n = 0, k = 0;
  Float8Matrix a;
  Float8Matrix b;
  Array c;
  bool accumulate = false;
  /// Sums may be rounded to fewer bits than fp32 has on the way, where that is faster.
  bool fast = false;
  ConstArray bias = {};  // n elements of bf16 that each row gets; none with `accumulate`
};

constexpr int64_t kFloat8Multiple = 16;

}  // namespace ferry::kernels
