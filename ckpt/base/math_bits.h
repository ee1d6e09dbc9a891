// What PyTorch leaves undone in a view: conj() and the negation that comes with its imaginary part
// are bits of the tensor, and its storage has the elements as they were before.
//
// Source: torch/_utils.py (set_tensor_metadata), aten/src/ATen/ConjugateFallback.cpp and
// NegateFallback.cpp.
#pragma once

#include <cstdint>
#include <string>

#include "ckpt/base/dtype.h"

namespace ferry {

struct MathBits {
  bool conjugated = false;
  bool negated = false;

  bool any() const noexcept { return conjugated || negated; }
};

/// The parts of an element of a dtype (two of a complex number, real and imaginary, else one) whose
/// sign is another than the stored one.
struct SignFlips {
  int64_t part_bytes = 0;
  bool first = false, second = false;
};
SignFlips sign_flips(MathBits bits, DType dtype) noexcept;

/// unsupported, naming `what`, for elements whose sign is no bit of theirs.
void check_math_bits(MathBits bits, DType dtype, const std::string& what);

}  // namespace ferry
