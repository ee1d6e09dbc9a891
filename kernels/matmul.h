// Matrix products.
#pragma once

#include <span>

#include "kernels/activation.h"
#include "kernels/array.h"

namespace ferry::kernels {

/// c = a·b, or c += a·b: [m, k] times [k, n], all row-major. Products are summed in fp32 and
/// rounded once to c's type. a and b have one type; c has that or f32.
struct Matmul {
  int64_t m = 0, n = 0, k = 0;
  ConstArray a;
  ConstArray b;
  Array c;
  bool a_transposed = false;  // a lies in memory as [k, m]
  bool b_transposed = false;  // b lies in memory as [n, k], as weights of linear layers do
  bool accumulate = false;
  ConstArray bias = {};  // n elements that each row gets, of a's type; none with `accumulate`
  /// activated = activation(c), of c's type, where there is memory for it; not with `accumulate`.
  /// The function has one input and no parameters.
  Activation activation = Activation::gelu_tanh;
  Array activated = {};
};

/// A product for each group of rows, as experts compute them. Group g has the rows
/// [offsets[g], offsets[g + 1]) of the matrices with rows, and a weight of its own. `offsets` has
/// groups + 1 elements in the memory of the device. A group without rows leaves what it would add
/// to as it is.
struct GroupedMatmul {
  int64_t n = 0, k = 0;
  int64_t rows = 0;  // offsets[groups]
  const int64_t* offsets = nullptr;
  ConstArray a;                           // [rows, k]
  std::span<const ConstArray> b;          // by group, [k, n]
  Array c;                                // [rows, n]
  bool b_transposed = false;              // [n, k]
  std::span<const ConstArray> bias = {};  // by group, n elements; or none
};

/// Weight gradients of the same: c[g] = or += transposed a of the group's rows · b of the group's
/// rows.
struct GroupedMatmulGradient {
  int64_t m = 0, n = 0;
  int64_t rows = 0;
  const int64_t* offsets = nullptr;
  ConstArray a;              // [rows, m]
  ConstArray b;              // [rows, n]
  std::span<const Array> c;  // by group, [m, n]
  bool accumulate = true;    // else the gradient of a group without rows becomes zero
};

}  // namespace ferry::kernels
