#include "ckpt/base/cast.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "ckpt/base/dtype.h"
#include "ckpt/base/error.h"
#include "ckpt/base/load_as.h"
#include "ckpt/base/processors.h"

namespace ferry {
namespace {

// With neighbouring elements the strides are constants, and the compiler makes vectors of the loop.
template <typename In, typename Function>
bool each(const std::byte* in, int64_t in_stride, std::byte* out, int64_t out_stride, int64_t count,
          const Function& function) {
  using Out = decltype(function(In{}));
  constexpr auto kIn = static_cast<int64_t>(sizeof(In)), kOut = static_cast<int64_t>(sizeof(Out));
  if (in_stride == kIn && out_stride == kOut) {
    for (int64_t i = 0; i < count; ++i) {
      const Out value = function(load_as<In>(in + i * kIn));
      std::memcpy(out + i * kOut, &value, sizeof value);
    }
  } else {
    for (int64_t i = 0; i < count; ++i, in += in_stride, out += out_stride) {
      const Out value = function(load_as<In>(in));
      std::memcpy(out, &value, sizeof value);
    }
  }
  return true;
}

// No branches below: choices between values that are computed in any case.

uint16_t bf16_of_f32(uint32_t bits) {
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
  return static_cast<uint16_t>(is_nan ? bits >> 16 | 0x40 : rounded);
}

uint32_t f32_of_bf16(uint16_t bits) { return uint32_t{bits} << 16; }

uint32_t f32_of_f16(uint16_t half) {
  const uint32_t magnitude = half & 0x7fffu, sign = (half & 0x8000u) << 16;
  const uint32_t normal = (magnitude << 13) + ((127u - 15u) << 23);
  const auto subnormal =
      std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  const uint32_t special = magnitude > 0x7c00u ? 0x7fc00000u : 0x7f800000u;
  const uint32_t finite = magnitude < 0x400u ? subnormal : normal;
  return sign | (magnitude >= 0x7c00u ? special : finite);
}

uint16_t f16_of_f32(uint32_t bits) {
  const uint32_t magnitude = bits & 0x7fffffffu, sign = bits >> 16 & 0x8000u;
  const uint32_t odd = magnitude >> 13 & 1;
  const uint32_t normal = (magnitude - ((127u - 15u) << 23) + 0xfffu + odd) >> 13;
  // The unit of 0.5 is that of fp16's subnormals: the sum is rounded to it.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  const uint32_t special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  const uint32_t finite = magnitude < 0x38800000u ? subnormal : normal;
  return static_cast<uint16_t>(sign | (magnitude >= 0x47800000u ? special : finite));
}

// What each byte becomes: the same for all, so the slow way is gone 256 times.
template <typename Out>
bool look_up(const std::byte* in, int64_t in_stride, DType from, std::byte* out, int64_t out_stride,
             DType to, int64_t count) {
  constexpr int64_t kCodes = 256;
  if (count < kCodes) return false;
  std::array<double, kCodes> values;
  for (size_t code = 0; code < kCodes; ++code) {
    const auto byte = static_cast<std::byte>(code);
    values[code] = load_as_double(&byte, from);
  }
  std::array<Out, kCodes> results;
  convert(reinterpret_cast<const std::byte*>(values.data()), sizeof(double), DType::f64,
          reinterpret_cast<std::byte*>(results.data()), sizeof(Out), to, kCodes);
  return each<uint8_t>(in, in_stride, out, out_stride, count,
                       [&](uint8_t code) { return results[code]; });
}

bool is_float8(DType dtype) {
  return dtype == DType::f8_e4m3 || dtype == DType::f8_e5m2 || dtype == DType::f8_e4m3fnuz ||
         dtype == DType::f8_e5m2fnuz;
}

// For neighbouring elements, with vectors of the processor at hand: those of the baseline have no
// instruction that packs 32 bits into 16 without a sign.
FERRY_FOR_EACH_PROCESSOR bool f32_to_bf16(const std::byte* in, std::byte* out, int64_t count) {
  return each<uint32_t>(in, sizeof(uint32_t), out, sizeof(uint16_t), count, bf16_of_f32);
}

FERRY_FOR_EACH_PROCESSOR bool bf16_to_f32(const std::byte* in, std::byte* out, int64_t count) {
  return each<uint16_t>(in, sizeof(uint16_t), out, sizeof(uint32_t), count, f32_of_bf16);
}

// What convert() does, bit for bit, for the pairs of dtypes that have a short way; false, with
// nothing done, for the others.
bool convert_fast(const std::byte* in, int64_t in_stride, DType from, std::byte* out,
                  int64_t out_stride, DType to, int64_t count) {
  const auto is = [&](DType a, DType b) { return from == a && to == b; };
  const DType f16 = DType::f16, bf16 = DType::bf16, f32 = DType::f32, f64 = DType::f64;
  const bool are_neighbours = in_stride == size_bytes(from) && out_stride == size_bytes(to);
  if (is(f32, bf16) && are_neighbours) return f32_to_bf16(in, out, count);
  if (is(bf16, f32) && are_neighbours) return bf16_to_f32(in, out, count);
  if (is(f32, bf16)) return each<uint32_t>(in, in_stride, out, out_stride, count, bf16_of_f32);
  if (is(bf16, f32)) return each<uint16_t>(in, in_stride, out, out_stride, count, f32_of_bf16);
  if (is(f32, f16)) return each<uint32_t>(in, in_stride, out, out_stride, count, f16_of_f32);
  if (is(f16, f32)) return each<uint16_t>(in, in_stride, out, out_stride, count, f32_of_f16);
  if (is(bf16, f16)) {
    return each<uint16_t>(in, in_stride, out, out_stride, count,
                          [](uint16_t bits) { return f16_of_f32(f32_of_bf16(bits)); });
  }
  if (is(f16, bf16)) {
    return each<uint16_t>(in, in_stride, out, out_stride, count,
                          [](uint16_t bits) { return bf16_of_f32(f32_of_f16(bits)); });
  }
  if (is(f32, f64)) {
    return each<float>(in, in_stride, out, out_stride, count,
                       [](float value) { return static_cast<double>(value); });
  }
  if (is(f64, f32)) {
    return each<double>(in, in_stride, out, out_stride, count,
                        [](double value) { return static_cast<float>(value); });
  }
  if (is_float8(from) && size_bytes(to) == 2) {
    return look_up<uint16_t>(in, in_stride, from, out, out_stride, to, count);
  }
  if (is_float8(from) && to == f32) {
    return look_up<uint32_t>(in, in_stride, from, out, out_stride, to, count);
  }
  return false;
}

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
