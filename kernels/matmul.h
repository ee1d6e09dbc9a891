// Matrix products.
#pragma once

#include <span>

#include "kernels/activation.h"
#include "kernels/array.h"

namespace ferry::kernels {

/// c = a·b, or c += a·b: [m, k] times [k, n], all row-major. Accumulates in fp32 and rounds once to
/// c's type. a and b have the same type; c has that type or f32.
struct Matmul {
  int64_t m = 0, n = 0, k = 0;
  ConstArray a;
  ConstArray b;
  Array c;
  bool a_transposed = false;  // a is stored as [k, m]
  bool b_transposed = false;  // b is stored as [n, k], like weights of linear layers
  bool accumulate = false;
  ConstArray bias = {};  // n elements of a's type added to each row; not with `accumulate`
  /// If set, activated = activation(c), of c's type; not with `accumulate`. The function must have
  /// one input and no parameters.
  Activation activation = Activation::gelu_tanh;
  Array activated = {};
};

/// A product for each group of rows, for experts. Group g has the rows [offsets[g], offsets[g + 1])
/// of the matrices with rows, and its own weight. `offsets` has groups + 1 elements in device
/// memory.
struct GroupedMatmul {
  int64_t n = 0, k = 0;
  int64_t rows = 0;  // offsets[groups]
  const int64_t* offsets = nullptr;
  ConstArray a;                   // [rows, k]
  std::span<const ConstArray> b;  // by group, [k, n]
  Array c;                        // [rows, n]
  bool b_transposed = false;      // [n, k]
};

/// y[i] += the bias of row i's group, times row_scale[i]. Groups as above.
struct GroupedBias {
  int64_t width = 0;
  int64_t rows = 0;
  const int64_t* offsets = nullptr;
  std::span<const ConstArray> bias;  // by group, [width]
  const float* row_scale = nullptr;  // [rows]; null: 1
  Array y;                           // [rows, width]
};

/// Gradients of biases, summed over a group's rows in a fixed order, and of the rows' factors.
struct GroupedBiasGradient {
  int64_t width = 0;
  int64_t rows = 0;
  const int64_t* offsets = nullptr;
  ConstArray dy;                          // [rows, width]
  const float* row_scale = nullptr;       // [rows]; null: 1
  std::span<const Array> dbias;           // by group, [width]
  bool accumulate = true;                 // otherwise a group without rows gets zero
  std::span<const ConstArray> bias = {};  // for drow_scale
  float* drow_scale = nullptr;            // [rows]: dy · bias is added; may be null
};

/// The weight gradients: c[g] = or += transposed a of the group's rows · b of the group's rows.
struct GroupedMatmulGradient {
  int64_t m = 0, n = 0;
  int64_t rows = 0;
  const int64_t* offsets = nullptr;
  ConstArray a;              // [rows, m]
  ConstArray b;              // [rows, n]
  std::span<const Array> c;  // by group, [m, n]
  bool accumulate = true;    // otherwise a group without rows gets zero
};

}  // namespace ferry::kernels
