#include "ckpt/base/cast_fast.h"

#include <array>
#include <bit>
#include <cstring>

#include "ckpt/base/cast.h"
#include "ckpt/base/load_as.h"

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

}  // namespace

bool convert_fast(const std::byte* in, int64_t in_stride, DType from, std::byte* out,
                  int64_t out_stride, DType to, int64_t count) {
  const auto is = [&](DType a, DType b) { return from == a && to == b; };
  const DType f16 = DType::f16, bf16 = DType::bf16, f32 = DType::f32, f64 = DType::f64;
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

}  // namespace ferry
