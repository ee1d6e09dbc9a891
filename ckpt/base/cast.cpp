#include "ckpt/base/cast.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "ckpt/base/cast_fast.h"
#include "ckpt/base/error.h"
#include "ckpt/base/load_as.h"

namespace ferry {
namespace {

// A binary floating-point format of at most 16 bits.
struct Small {
  int exponent_bits;
  int mantissa_bits;
  int bias;
  bool has_infinity;
  bool only_nan_is_negative_zero;  // the fnuz forms
};

constexpr Small small_format(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return {5, 10, 15, true, false};
    case DType::bf16:
      return {8, 7, 127, true, false};
    case DType::f8_e4m3:
      return {4, 3, 7, false, false};
    case DType::f8_e5m2:
      return {5, 2, 15, true, false};
    case DType::f8_e4m3fnuz:
      return {4, 3, 8, false, true};
    case DType::f8_e5m2fnuz:
      return {5, 2, 16, false, true};
    default:
      return {};
  }
}

double decode_small(uint32_t bits, const Small& f) {
  const uint32_t mantissa = bits & ((1u << f.mantissa_bits) - 1);
  const uint32_t exponent = (bits >> f.mantissa_bits) & ((1u << f.exponent_bits) - 1);
  const bool negative = bits >> (f.mantissa_bits + f.exponent_bits) & 1;
  const uint32_t all_ones = (1u << f.exponent_bits) - 1;
  double value;
  if (f.only_nan_is_negative_zero && negative && mantissa == 0 && exponent == 0) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (f.has_infinity && exponent == all_ones) {
    value = mantissa ? std::numeric_limits<double>::quiet_NaN()
                     : std::numeric_limits<double>::infinity();
  } else if (!f.has_infinity && !f.only_nan_is_negative_zero && exponent == all_ones &&
             mantissa == (1u << f.mantissa_bits) - 1) {
    value = std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, 1 - f.bias - f.mantissa_bits);
  } else {
    value = std::ldexp(mantissa + (1u << f.mantissa_bits),
                       static_cast<int>(exponent) - f.bias - f.mantissa_bits);
  }
  return negative ? -value : value;
}

uint32_t encode_small(double value, const Small& f) {
  const uint32_t sign = std::signbit(value) ? 1u << (f.mantissa_bits + f.exponent_bits) : 0;
  const uint32_t all_ones = (1u << f.exponent_bits) - 1;
  const uint32_t nan = f.only_nan_is_negative_zero ? 1u << (f.mantissa_bits + f.exponent_bits)
                       : f.has_infinity
                           ? sign | all_ones << f.mantissa_bits | 1u << (f.mantissa_bits - 1)
                           : sign | all_ones << f.mantissa_bits | ((1u << f.mantissa_bits) - 1);
  if (std::isnan(value)) return nan;
  const uint32_t overflow = f.has_infinity ? sign | all_ones << f.mantissa_bits : nan;
  const double magnitude = std::fabs(value);
  if (std::isinf(value)) return overflow;
  if (magnitude == 0) return f.only_nan_is_negative_zero ? 0 : sign;
  int exponent;
  std::frexp(magnitude, &exponent);  // magnitude = m * 2^exponent, m in [0.5, 1)
  // The unit in the last place: of the value's binade, or of the subnormals.
  const int unit = std::max(exponent - 1, 1 - f.bias) - f.mantissa_bits;
  // Exact, then rounded to nearest even by the default rounding mode.
  const double scaled = std::nearbyint(std::ldexp(magnitude, -unit));
  auto units = static_cast<uint64_t>(scaled);
  int biased = unit + f.mantissa_bits + f.bias;
  if (units >> (f.mantissa_bits + 1)) units >>= 1, ++biased;  // rounded up into the next binade
  if (units < (1u << f.mantissa_bits)) biased = 0;            // subnormal
  const uint32_t largest_exponent = f.has_infinity ? all_ones - 1 : all_ones;
  const uint32_t mantissa = static_cast<uint32_t>(units) & ((1u << f.mantissa_bits) - 1);
  const bool beyond =
      biased > static_cast<int>(largest_exponent) ||
      (!f.has_infinity && !f.only_nan_is_negative_zero && biased == static_cast<int>(all_ones) &&
       mantissa == (1u << f.mantissa_bits) - 1);
  if (beyond) return overflow;
  const uint32_t result = static_cast<uint32_t>(biased) << f.mantissa_bits | mantissa;
  return result == 0 && f.only_nan_is_negative_zero ? 0 : sign | result;
}

uint32_t load_bits(const std::byte* at, DType dtype) {
  return size_bytes(dtype) == 2 ? load_as<uint16_t>(at) : load_as<uint8_t>(at);
}

void store_double(double value, std::byte* at, DType dtype) {
  if (dtype == DType::f64) {
    std::memcpy(at, &value, sizeof value);
  } else if (dtype == DType::f32) {
    const auto narrow = static_cast<float>(value);
    std::memcpy(at, &narrow, sizeof narrow);
  } else {
    const uint32_t bits = encode_small(value, small_format(dtype));
    std::memcpy(at, &bits, static_cast<size_t>(size_bytes(dtype)));
  }
}

}  // namespace

bool can_convert(DType from, DType to) noexcept {
  const auto usable = [](DType dtype) {
    return is_floating_point(dtype) && dtype != DType::f4x2 && dtype != DType::f8_e8m0;
  };
  return from == to || (usable(from) && usable(to));
}

double load_as_double(const std::byte* at, DType dtype) {
  switch (dtype) {
    case DType::boolean:
      return load_as<uint8_t>(at) ? 1 : 0;
    case DType::u8:
      return load_as<uint8_t>(at);
    case DType::i8:
      return load_as<int8_t>(at);
    case DType::u16:
      return load_as<uint16_t>(at);
    case DType::i16:
      return load_as<int16_t>(at);
    case DType::u32:
      return load_as<uint32_t>(at);
    case DType::i32:
      return load_as<int32_t>(at);
    case DType::u64:
      return static_cast<double>(load_as<uint64_t>(at));
    case DType::i64:
      return static_cast<double>(load_as<int64_t>(at));
    case DType::f32:
      return load_as<float>(at);
    case DType::f64:
      return load_as<double>(at);
    case DType::bf16:
      return std::bit_cast<float>(uint32_t{load_as<uint16_t>(at)} << 16);
    case DType::f8_e8m0: {
      const int exponent = load_as<uint8_t>(at);
      return exponent == 255 ? std::numeric_limits<double>::quiet_NaN()
                             : std::ldexp(1.0, exponent - 127);
    }
    case DType::f16:
    case DType::f8_e4m3:
    case DType::f8_e5m2:
    case DType::f8_e4m3fnuz:
    case DType::f8_e5m2fnuz:
      return decode_small(load_bits(at, dtype), small_format(dtype));
    case DType::c64:
    case DType::c128:
    case DType::f4x2:
      break;
  }
  fail(ErrorKind::internal, "{} has no single value", safetensors_name(dtype));
}

void convert(const std::byte* in, int64_t in_stride, DType from, std::byte* out, int64_t out_stride,
             DType to, int64_t count) {
  if (convert_fast(in, in_stride, from, out, out_stride, to, count)) return;
  for (int64_t i = 0; i < count; ++i, in += in_stride, out += out_stride) {
    store_double(load_as_double(in, from), out, to);
  }
}

}  // namespace ferry
