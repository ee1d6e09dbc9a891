// Matrix products by oneDNN (docs/decisions/0014-matrix-products.md).
#pragma once

#include <memory>

#include "kernels/array.h"

namespace ferry::kernels {

/// c = a·b + bias, or c += a·b, of matrices inside larger ones, with rows `stride` elements apart.
struct Product {
  int64_t m = 0, n = 0, k = 0;
  ConstArray a, b, bias;
  Array c;
  int64_t a_stride = 0, b_stride = 0, c_stride = 0;
  bool a_transposed = false, b_transposed = false;
  bool accumulate = false;
};

/// A cache of the library's primitives by shape. The bits of a result depend on the machine, the
/// number of threads and the shape.
class Products {
 public:
  explicit Products(int threads);
  ~Products();

  /// Returns false, without computing, if the library has no fast kernel for the types on this
  /// machine. It always has fp32.
  bool run(const Product& product);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ferry::kernels
