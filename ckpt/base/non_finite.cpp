#include "ckpt/base/non_finite.h"

#include "ckpt/base/load_as.h"

namespace ferry {
namespace {

// Bits by which a value is not finite: `special` of those in `mask`. It is a NaN unless the
// type has infinities and all bits of `mantissa` are 0.
template <typename Bits>
struct Form {
  Bits mask, special, mantissa;
};

constexpr Form<uint64_t> kF64 = {0x7ff0000000000000, 0x7ff0000000000000, 0x000fffffffffffff};
constexpr Form<uint32_t> kF32 = {0x7f800000, 0x7f800000, 0x007fffff};
constexpr Form<uint16_t> kF16 = {0x7c00, 0x7c00, 0x03ff};
constexpr Form<uint16_t> kBf16 = {0x7f80, 0x7f80, 0x007f};
constexpr Form<uint8_t> kE5m2 = {0x7c, 0x7c, 0x03};
// Without infinities.
constexpr Form<uint8_t> kE4m3 = {0x7f, 0x7f, 0x00};
constexpr Form<uint8_t> kFnuz = {0xff, 0x80, 0x00};
constexpr Form<uint8_t> kE8m0 = {0xff, 0xff, 0x00};

template <typename Bits>
NonFinite count(std::span<const std::byte> bytes, const Form<Bits>& form) noexcept {
  const size_t elements = bytes.size() / sizeof(Bits);
  const auto at = [&](size_t i) { return load_as<Bits>(bytes.data() + i * sizeof(Bits)); };
  int64_t special = 0;
  for (size_t i = 0; i < elements; ++i) special += (at(i) & form.mask) == form.special;
  if (special == 0 || form.mantissa == 0) return {special, 0};
  int64_t infinite = 0;
  for (size_t i = 0; i < elements; ++i) {
    infinite += (at(i) & (form.mask | form.mantissa)) == form.special;
  }
  return {special - infinite, infinite};
}

}  // namespace

bool may_be_non_finite(DType dtype) noexcept {
  const bool is_complex = dtype == DType::c64 || dtype == DType::c128;
  return is_complex || (is_floating_point(dtype) && dtype != DType::f4x2);
}

NonFinite count_non_finite(std::span<const std::byte> bytes, DType dtype) noexcept {
  switch (dtype) {
    case DType::f64:
    case DType::c128:
      return count(bytes, kF64);
    case DType::f32:
    case DType::c64:
      return count(bytes, kF32);
    case DType::f16:
      return count(bytes, kF16);
    case DType::bf16:
      return count(bytes, kBf16);
    case DType::f8_e5m2:
      return count(bytes, kE5m2);
    case DType::f8_e4m3:
      return count(bytes, kE4m3);
    case DType::f8_e4m3fnuz:
    case DType::f8_e5m2fnuz:
      return count(bytes, kFnuz);
    case DType::f8_e8m0:
      return count(bytes, kE8m0);
    default:
      return {};
  }
}

}  // namespace ferry
