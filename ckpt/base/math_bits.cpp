#include "ckpt/base/math_bits.h"

#include "ckpt/base/error.h"

namespace ferry {
namespace {

bool is_complex(DType dtype) { return dtype == DType::c64 || dtype == DType::c128; }

// Flips the highest bit; types without a negative zero are not supported.
bool has_sign_bit(DType dtype) {
  switch (dtype) {
    case DType::f16:
    case DType::bf16:
    case DType::f32:
    case DType::f64:
    case DType::f8_e4m3:
    case DType::f8_e5m2:
      return true;
    default:
      return is_complex(dtype);
  }
}

}  // namespace

SignFlips sign_flips(MathBits bits, DType dtype) noexcept {
  const int64_t bytes = size_bytes(dtype);
  if (!is_complex(dtype)) return {bytes, bits.negated, false};
  return {bytes / 2, bits.negated, bits.negated != bits.conjugated};
}

void check_math_bits(MathBits bits, DType dtype, const std::string& what) {
  if (!bits.negated || has_sign_bit(dtype)) return;
  fail(ErrorKind::unsupported,
       "{}: a view of {} that PyTorch has yet to negate (its negative bit is set); save what "
       "resolve_neg() gives",
       what, torch_name(dtype));
}

}  // namespace ferry
