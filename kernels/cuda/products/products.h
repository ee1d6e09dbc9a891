// Matrix products by cuBLASLt.
#pragma once

#include <memory>

#include "kernels/cuda/products/library.h"
#include "kernels/float8.h"
#include "kernels/matmul.h"

namespace ferry::kernels::cuda {

/// What the library has prepared for the shapes so far seen.
///
/// **Bits.** The library's own first choice for a shape says what the bits are. Of its other
/// choices those that give the same bits, on random numbers, are timed when a shape is met for the
/// first time, and the fastest is kept: how long something took never changes a result.
class Products {
 public:
  explicit Products(Library& library);
  ~Products();

  void run(const Matmul& x);

 private:
  void run_plain(const Matmul& x);
  bool run_prepared(const Matmul& x);

  struct State;
  std::unique_ptr<State> state_;
};

/// The same of 8-bit numbers, on Hopper and later.
class Float8Products {
 public:
  explicit Float8Products(Library& library);
  ~Float8Products();

  void run(const Float8Matmul& x);

 private:
  void run_aside(const Float8Matmul& x);

  struct State;
  std::unique_ptr<State> state_;
};

/// Products that nothing better is there for: of any type, size and alignment, and slow.
void run_in_tiles(Device& device, const Matmul& x);
void run_in_tiles(Device& device, const GroupedMatmul& x);
void run_in_tiles(Device& device, const GroupedMatmulGradient& x);

}  // namespace ferry::kernels::cuda
