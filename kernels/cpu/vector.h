// Vectors of sixteen fp32 numbers, and conversions from each element type. They are compiler
// vectors: one register with AVX-512, otherwise several. Sums have sixteen lanes on every machine,
// so that their bits are the same.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/array.h"

#define FERRY_INLINE [[gnu::always_inline]] inline

namespace ferry::kernels::FERRY_KERNELS_TARGET {

constexpr int kLanes = 16;
using Float = float __attribute__((vector_size(64)));
using Int = int32_t __attribute__((vector_size(64)));
using UInt = uint32_t __attribute__((vector_size(64)));
using UShort = uint16_t __attribute__((vector_size(32)));
using Double = double __attribute__((vector_size(128)));

struct BFloat16 {
  uint16_t bits;
};
struct Half {
  uint16_t bits;
};

template <typename To, typename From>
FERRY_INLINE To bits_of(From value) {
  return __builtin_bit_cast(To, value);
}
FERRY_INLINE Float all(float value) { return Float{} + value; }

FERRY_INLINE Float load(const float* from) {
  Float value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
FERRY_INLINE UInt load_words(const void* from) {
  UShort value;
  std::memcpy(&value, from, sizeof value);
  return __builtin_convertvector(value, UInt);
}
FERRY_INLINE Float load(const BFloat16* from) { return bits_of<Float>(load_words(from) << 16); }

/// Rebiases exponents by multiplying with a power of two, which also handles subnormal numbers.
FERRY_INLINE Float load(const Half* from) {
  const UInt words = load_words(from);
  const UInt magnitude = (words & 0x7FFF) << 13;
  const Float number = bits_of<Float>(magnitude) * 0x1p112F;
  const UInt not_finite = magnitude | 0x7F800000;
  const UInt bits = magnitude >= 0x0F800000 ? not_finite : bits_of<UInt>(number);
  return bits_of<Float>(bits | (words & 0x8000) << 16);
}

FERRY_INLINE void store(float* to, Float value) { std::memcpy(to, &value, sizeof value); }
FERRY_INLINE void store_words(void* to, UInt words) {
  const UShort value = __builtin_convertvector(words, UShort);
  std::memcpy(to, &value, sizeof value);
}

/// Rounds ties to even; NaN stays NaN.
FERRY_INLINE void store(BFloat16* to, Float value) {
  const UInt bits = bits_of<UInt>(value);
  const UInt rounded = bits + 0x7FFF + (bits >> 16 & 1);
  store_words(to, (value != value ? bits | 0x400000 : rounded) >> 16);
}

/// Rounds subnormal halves by adding a number whose last bit has their weight.
FERRY_INLINE void store(Half* to, Float value) {
  const UInt bits = bits_of<UInt>(value);
  const UInt magnitude = bits & 0x7FFFFFFF;
  const UInt normal = (magnitude + 0xFFF + (magnitude >> 13 & 1) - (112U << 23)) >> 13;
  const Float shifted = bits_of<Float>(magnitude) + 0.5F;
  const UInt subnormal = bits_of<UInt>(shifted) - 0x3F000000;
  UInt half = magnitude < 0x38800000 ? subnormal : normal;
  half = magnitude >= 0x477FF000 ? UInt{} + 0x7C00 : half;
  half = magnitude > 0x7F800000 ? UInt{} + 0x7E00 : half;
  store_words(to, half | (bits >> 16 & 0x8000));
}

/// A whole vector, known at compile time; partial vectors at the end of a row use an int.
struct Full {};

template <typename T>
FERRY_INLINE Float load(const T* from, Full) {
  return load(from);
}
template <typename T>
FERRY_INLINE void store(T* to, Float value, Full) {
  store(to, value);
}
/// The first `count` elements; the others are zero.
template <typename T>
FERRY_INLINE Float load(const T* from, int count) {
  T part[kLanes] = {};
  for (int i = 0; i < count; ++i) part[i] = from[i];
  return load(part);
}
template <typename T>
FERRY_INLINE void store(T* to, Float value, int count) {
  T part[kLanes];
  store(part, value);
  for (int i = 0; i < count; ++i) to[i] = part[i];
}

/// Elements of a type known at run time: row parameters and rarely read data.
template <typename Count>
FERRY_INLINE Float load(const ConstArray& from, int64_t first, Count count) {
  switch (from.type) {
    case Type::bf16:
      return load(static_cast<const BFloat16*>(from.data) + first, count);
    case Type::f16:
      return load(static_cast<const Half*>(from.data) + first, count);
    default:
      return load(static_cast<const float*>(from.data) + first, count);
  }
}
template <typename Count>
FERRY_INLINE void store(const Array& to, int64_t first, Float value, Count count) {
  switch (to.type) {
    case Type::bf16:
      return store(static_cast<BFloat16*>(to.data) + first, value, count);
    case Type::f16:
      return store(static_cast<Half*>(to.data) + first, value, count);
    default:
      return store(static_cast<float*>(to.data) + first, value, count);
  }
}

/// Calls f(first, count) for the vectors of [begin, end).
template <typename F>
FERRY_INLINE void vectors(int64_t begin, int64_t end, const F& f) {
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) f(i, Full{});
  if (i < end) f(i, static_cast<int>(end - i));
}

/// Calls f with a null pointer of the element type.
template <typename F>
FERRY_INLINE void with_type(Type type, const F& f) {
  switch (type) {
    case Type::bf16:
      return f(static_cast<BFloat16*>(nullptr));
    case Type::f16:
      return f(static_cast<Half*>(nullptr));
    default:
      return f(static_cast<float*>(nullptr));
  }
}
template <typename F>
FERRY_INLINE void with_types(Type first, Type second, const F& f) {
  with_type(first, [&](auto* a) { with_type(second, [&](auto* b) { f(a, b); }); });
}

/// The sum of the lanes, adding halves pairwise.
FERRY_INLINE float sum_of(Float value) {
  float lane[kLanes];
  store(lane, value);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lane[i] += lane[i + width];
  }
  return lane[0];
}
FERRY_INLINE float greatest_of(Float value) {
  float lane[kLanes];
  store(lane, value);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lane[i] = lane[i] < lane[i + width] ? lane[i + width] : lane[i];
  }
  return lane[0];
}

/// Zero in the lanes from `count` on.
FERRY_INLINE Float first_lanes(Float value, Full) { return value; }
FERRY_INLINE Float first_lanes(Float value, int count) {
  const Int lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return lane < count ? value : Float{};
}

FERRY_INLINE Float square_root(Float value) {
  float lane[kLanes];
  store(lane, value);
  for (float& x : lane) x = __builtin_sqrtf(x);
  return load(lane);
}

}  // namespace ferry::kernels::FERRY_KERNELS_TARGET
