// 8-bit floating-point numbers with one scale a tensor, and matrix products of them.
//
// Source: Micikevicius et al. 2022 (FP8 formats for deep learning); Transformer Engine
// transformer_engine/common/recipe for how scales follow from maxima.
#pragma once

#include <cstdint>
#include <span>

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

/// Quantize for each of several matrices of one shape, one after the other: experts' weights.
struct QuantizeEach {
  int64_t rows = 0, width = 0;
  std::span<const ConstArray> x;
  Float8Output to;  // of as many matrices; one scale, which all have, or null
  /// Without that scale: each matrix's own, computed from its values.
  Float8Scale* scales = nullptr;
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

/// A product for each group of rows, for experts: GroupedMatmul of 8-bit numbers, with b
/// transposed. Groups may have any number of rows; n and k are multiples of kFloat8Multiple.
/// Weights are e4m3. GPUs add as with Float8Matmul::fast.
struct GroupedFloat8Matmul {
  int64_t n = 0, k = 0;
  int64_t rows = 0;  // offsets[groups]
  int64_t groups = 0;
  const int64_t* offsets = nullptr;
  Float8Matrix a;                       // [rows, k]
  const uint8_t* b = nullptr;           // [groups, n, k]
  const Float8Scale* scales = nullptr;  // of b, [groups]
  bool shares_scale = false;            // all of b have the first of `scales`
  Array c;                              // [rows, n], bf16 on GPUs
};

/// Groups of rows along the columns of transposed matrices: group g's are consecutive from column
/// grouped_column(g, offsets[g]) on, followed by zeros up to a multiple of kFloat8Columns. Between
/// groups may be columns that nothing writes or reads.
constexpr int64_t kFloat8Columns = 128;
constexpr int64_t grouped_column(int64_t group, int64_t offset) {
  return (offset / kFloat8Columns + group) * kFloat8Columns;
}
/// The columns of such a matrix.
constexpr int64_t grouped_columns(int64_t groups, int64_t rows) {
  return grouped_column(groups, rows);
}

/// y = x [rows, width], or x's rows of these numbers, transposed by groups.
struct GroupedTranspose {
  int64_t rows = 0, width = 0;
  int64_t groups = 0;
  const int64_t* offsets = nullptr;
  const int32_t* index = nullptr;  // row r is x[index[r] / divisor]; null: x[r]
  int64_t divisor = 1;
  const uint8_t* x = nullptr;
  uint8_t* y = nullptr;  // [width, grouped_columns(groups, rows)]
};

/// GroupedMatmulGradient of 8-bit numbers, with both factors transposed by groups. m and n are
/// multiples of kFloat8Multiple; b is e4m3. GPUs add as with Float8Matmul::fast.
struct GroupedFloat8Gradient {
  int64_t m = 0, n = 0;
  int64_t rows = 0;
  const int64_t* offsets = nullptr;
  Float8Matrix a;            // [m, columns]
  Float8Matrix b;            // [n, columns]
  std::span<const Array> c;  // by group, [m, n]; bf16 or f32
  bool accumulate = true;    // otherwise a group without rows gets zero
};

}  // namespace ferry::kernels
