#include "ckpt/engine/quantise/encode_loops.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "ckpt/base/load_as.h"
#include "ckpt/base/processors.h"
#include "ckpt/core/plan_quantised.h"

namespace ferry {
namespace {

constexpr int32_t kMagnitudeBits = 0x7fffffff;
constexpr int32_t kInfinityBits = 0x7f800000;

// The code of a magnitude up to `kLargest` in a format whose mantissa has `kMantissa` bits and
// whose smallest normal number is 2^kLeast; halfway between two the even one. Adding 2^23 units of
// the last place rounds to them; that is a normal number's code but for its exponent, and a
// subnormal number has the unit of the smallest normal one.
template <int kMantissa, int kLeast, int32_t kLargest>
[[gnu::always_inline]] inline int32_t small_code(int32_t given) {
  constexpr int32_t kSmallestNormal = (127 + kLeast) << 23;
  const int32_t magnitude = std::min(given, kLargest);
  const int32_t exponent = std::max(magnitude & kInfinityBits, kSmallestNormal);
  const int32_t units = exponent + ((23 - kMantissa) << 23);
  const auto sum =
      std::bit_cast<int32_t>(std::bit_cast<float>(magnitude) + std::bit_cast<float>(units));
  return sum - units + ((exponent - kSmallestNormal) >> (23 - kMantissa));
}

[[gnu::always_inline]] inline int32_t to_e4m3(float value) {
  const auto bits = std::bit_cast<int32_t>(value);
  const int32_t magnitude = bits & kMagnitudeBits;
  const int32_t code = small_code<3, -6, std::bit_cast<int32_t>(kLargestE4m3)>(magnitude);
  return (bits >> 24 & 0x80) | (magnitude > kInfinityBits ? 0x7f : code);
}

[[gnu::always_inline]] inline int32_t e2m1_magnitude(float value) {
  return small_code<1, 0, std::bit_cast<int32_t>(kLargestE2m1)>(std::bit_cast<int32_t>(value) &
                                                                kMagnitudeBits);
}

// The number must be far smaller than the largest fp16.
[[gnu::always_inline]] inline float rounded_to_half(float value) {
  constexpr int32_t kSmallestHalf = 0x38800000;  // 2^-14: below it the unit is that of 1/2 in fp32
  const auto bits = std::bit_cast<int32_t>(value);
  const int32_t magnitude = bits & kMagnitudeBits;
  const int32_t normal = (magnitude + 0xfff + (magnitude >> 13 & 1)) & ~0x1fff;
  const auto small = std::bit_cast<int32_t>(std::bit_cast<float>(magnitude) + 0.5F - 0.5F);
  const int32_t result = magnitude < kSmallestHalf ? small : normal;
  return std::bit_cast<float>(result | (bits & ~kMagnitudeBits));
}

// A NaN becomes `low`.
[[gnu::always_inline]] inline float clamped(float value, float low, float high) {
  const float raised = value > low ? value : low;
  return raised < high ? raised : high;
}

// The code of a number from -8 to 7.
[[gnu::always_inline]] inline int32_t to_int4(float value) {
  return std::bit_cast<int32_t>(value + kToWhole) - std::bit_cast<int32_t>(kToWhole) + 8;
}

// Calls use(block, first, count) for each block; of the usual sizes the count is a constant.
template <int64_t kWidth, typename Use>
[[gnu::always_inline]] inline void each_block(const BlockedRow& row, const Use& use) {
  int64_t block = 0, first = 0;
  for (; first + kWidth <= row.columns; first += kWidth, ++block) use(block, first, kWidth);
  if (first < row.columns) use(block, first, row.columns - first);
}

template <typename Use>
[[gnu::always_inline]] inline void each_block(const BlockedRow& row, const Use& use) {
  if (row.width == 16) return each_block<16>(row, use);
  if (row.width == 32) return each_block<32>(row, use);
  if (row.width == 128) return each_block<128>(row, use);
  for (int64_t block = 0, first = 0; first < row.columns; first += row.width, ++block) {
    use(block, first, std::min(row.width, row.columns - first));
  }
}

// Bits of fp32 in the order of the numbers, and back.
[[gnu::always_inline]] inline int32_t in_order(int32_t bits) {
  return bits ^ (bits >> 31 & kMagnitudeBits);
}

// Bits of the type that are those of the magnitude at a place.
template <typename Bits>
[[gnu::always_inline]] inline Bits magnitude_at(const std::byte* values, int64_t i) {
  const auto bits = load_as<Bits>(values + i * static_cast<int64_t>(sizeof(Bits)));
  return static_cast<Bits>(bits & std::numeric_limits<Bits>::max());
}

// The larger magnitude of each two neighbours. Two of 16 bits are one word.
template <typename Bits>
[[gnu::always_inline]] inline void halve(const std::byte* values, int64_t count, int32_t* larger) {
  for (int64_t i = 0; i < count / 2; ++i) {
    if constexpr (sizeof(Bits) == 2) {
      const auto both = load_as<uint32_t>(values + 4 * i);
      const auto low = static_cast<int32_t>(both & 0x7fff);
      const auto high = static_cast<int32_t>(both >> 16 & 0x7fff);
      larger[i] = low > high ? low : high;
    } else {
      const Bits one = magnitude_at<Bits>(values, 2 * i),
                 other = magnitude_at<Bits>(values, 2 * i + 1);
      larger[i] = one > other ? one : other;
    }
  }
}

[[gnu::always_inline]] inline void halve(const int32_t* __restrict from, int64_t count,
                                         int32_t* __restrict larger) {
  for (int64_t i = 0; i < count / 2; ++i) {
    const int32_t one = from[2 * i], other = from[2 * i + 1];
    larger[i] = one > other ? one : other;
  }
}

constexpr int64_t kHalvedAtOnce = 512;  // values of short blocks
constexpr int64_t kLongBlock = 128;

struct Loops {
  // Blocks that are too short for a loop each.
  template <typename Bits, int64_t kWidth>
  [[gnu::always_inline]] static void raise_by_halving(const std::byte* values, int32_t* largest) {
    int32_t some[kHalvedAtOnce / 2], half[kHalvedAtOnce / 4];
    halve<Bits>(values, kHalvedAtOnce, some);
    halve(some, kHalvedAtOnce / 2, half);
    halve(half, kHalvedAtOnce / 4, some);
    halve(some, kHalvedAtOnce / 8, half);
    if constexpr (kWidth == 32) halve(half, kHalvedAtOnce / 16, some);
    const int32_t* const found = kWidth == 32 ? some : half;
    for (int64_t i = 0; i < kHalvedAtOnce / kWidth; ++i) {
      largest[i] = largest[i] > found[i] ? largest[i] : found[i];
    }
  }

  template <typename Bits>
  [[gnu::always_inline]] static void raise_largest(const std::byte* values, int64_t columns,
                                                   int64_t width, int32_t* largest) {
    while ((width == 16 || width == 32) && columns >= kHalvedAtOnce) {
      if (width == 16) raise_by_halving<Bits, 16>(values, largest);
      if (width == 32) raise_by_halving<Bits, 32>(values, largest);
      values += kHalvedAtOnce * static_cast<int64_t>(sizeof(Bits));
      columns -= kHalvedAtOnce;
      largest += kHalvedAtOnce / width;
    }
    each_block(
        BlockedRow{nullptr, columns, width}, [&](int64_t block, int64_t first,
                                                 int64_t count) __attribute__((always_inline)) {
          const std::byte* const at = values + first * static_cast<int64_t>(sizeof(Bits));
          Bits found = 0;
          for (int64_t i = 0; i < count; ++i) {
            const auto bits = magnitude_at<Bits>(at, i);
            found = found > bits ? found : bits;
          }
          largest[block] = std::max<int32_t>(largest[block], found);
        });
  }

  [[gnu::always_inline]] static void find_extremes(const BlockedRow& row, float* least,
                                                   float* most) {
    each_block(
        row, [&](int64_t block, int64_t first, int64_t count) __attribute__((always_inline)) {
          const float* const values = row.values + first;
          int32_t low = 0, high = 0;
          for (int64_t i = 0; i < count; ++i) {
            const int32_t bits = in_order(std::bit_cast<int32_t>(values[i]));
            low = low < bits ? low : bits;
            high = high > bits ? high : bits;
          }
          least[block] = std::bit_cast<float>(in_order(low));
          most[block] = std::bit_cast<float>(in_order(high));
        });
  }

  // Codes that were computed with 32 bits, by way of 16: to bytes at once a compiler computes with
  // fewer bits, and spends more on the order of the elements than on the rest.
  [[gnu::always_inline]] static void store(const uint16_t* __restrict codes, int64_t count,
                                           uint8_t* __restrict to) {
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<uint8_t>(codes[i]);
  }

  [[gnu::always_inline]] static void store_pairs(const uint16_t* __restrict codes, int64_t count,
                                                 uint8_t* __restrict to) {
    for (int64_t i = 0; i < count / 2; ++i) {
      to[i] = static_cast<uint8_t>(codes[2 * i] | codes[2 * i + 1] << 4);
    }
    if (count % 2 != 0) to[count / 2] = static_cast<uint8_t>(codes[count - 1]);
  }

  template <typename Round>
  [[gnu::always_inline]] static void encode_rounded(const BlockedRow& row, const float* factors,
                                                    const float* zeros, const Round& rounded,
                                                    uint16_t* __restrict codes) {
    each_block(
        row, [&](int64_t block, int64_t first, int64_t count) __attribute__((always_inline)) {
          const float* const __restrict values = row.values + first;
          uint16_t* const __restrict to = codes + first;
          const float factor = factors[block];
          if (zeros == nullptr) {
            for (int64_t i = 0; i < count; ++i) {
              const float quotient = clamped(values[i] / factor, kLowInt4, kHighInt4);
              to[i] = static_cast<uint16_t>(to_int4(rounded(quotient)));
            }
            return;
          }
          // Zero points are from -8 to 7: what is further away than their range stays so.
          const float zero = zeros[block];
          for (int64_t i = 0; i < count; ++i) {
            const float quotient =
                rounded(clamped(values[i] / factor, kLowInt4 - kRangeInt4, kHighInt4 + kRangeInt4));
            to[i] = static_cast<uint16_t>(
                to_int4(clamped(rounded(quotient + zero), kLowInt4, kHighInt4)));
          }
        });
  }

  [[gnu::always_inline]] static void encode_integers(const BlockedRow& row, const float* factors,
                                                     const float* zeros, DType dtype,
                                                     std::byte* to) {
    uint16_t codes[kEncodedAtOnce];
    if (dtype == DType::bf16) {
      encode_rounded(
          row, factors, zeros,
          [](float value) __attribute__((always_inline)) { return rounded_to_bf16(value); }, codes);
    } else if (dtype == DType::f16) {
      encode_rounded(
          row, factors, zeros,
          [](float value) __attribute__((always_inline)) { return rounded_to_half(value); }, codes);
    } else {
      encode_rounded(
          row, factors, zeros, [](float value) __attribute__((always_inline)) { return value; },
          codes);
    }
    store_pairs(codes, row.columns, reinterpret_cast<uint8_t*>(to));
  }

  [[gnu::always_inline]] static void scale_row(const BlockedRow& row, const float* factors,
                                               bool multiplies, float* __restrict quotients) {
    each_block(
        row, [&](int64_t block, int64_t first, int64_t count) __attribute__((always_inline)) {
          const float* const __restrict values = row.values + first;
          float* const __restrict to = quotients + first;
          const float factor = factors[block];
          if (multiplies) {
            for (int64_t i = 0; i < count; ++i) to[i] = values[i] * factor;
          } else {
            for (int64_t i = 0; i < count; ++i) to[i] = values[i] / factor;
          }
        });
  }

  [[gnu::always_inline]] static void round_row(QuantiseRule rule, const float* __restrict quotients,
                                               int64_t count, std::byte* to) {
    uint16_t codes[kEncodedAtOnce];
    auto* const bytes = reinterpret_cast<uint8_t*>(to);
    switch (rule) {
      case QuantiseRule::mxfp4_up:
        for (int64_t i = 0; i < count; ++i) {
          const int32_t sign = std::bit_cast<int32_t>(quotients[i]) >> 28 & 8;
          codes[i] = static_cast<uint16_t>(sign | e2m1_magnitude(quotients[i]));
        }
        return store_pairs(codes, count, bytes);
      case QuantiseRule::mxfp4:
      case QuantiseRule::nvfp4:
      case QuantiseRule::nvfp4_divided:
        // A number that is rounded to zero keeps its sign; one that is zero has none.
        for (int64_t i = 0; i < count; ++i) {
          const int32_t sign = quotients[i] < 0 ? 8 : 0;
          codes[i] = static_cast<uint16_t>(sign | e2m1_magnitude(quotients[i]));
        }
        return store_pairs(codes, count, bytes);
      default:
        for (int64_t i = 0; i < count; ++i) codes[i] = static_cast<uint16_t>(to_e4m3(quotients[i]));
        return store(codes, count, bytes);
    }
  }

  [[gnu::always_inline]] static void encode_floats(QuantiseRule rule, const BlockedRow& row,
                                                   const float* factors, bool multiplies,
                                                   std::byte* to) {
    if (row.width < kLongBlock || multiplies || codes_in_byte(rule) != 1) {
      // Short blocks are faster in two loops.
      float quotients[kEncodedAtOnce];
      scale_row(row, factors, multiplies, quotients);
      return round_row(rule, quotients, row.columns, to);
    }
    uint16_t codes[kEncodedAtOnce];
    each_block(
        row, [&](int64_t block, int64_t first, int64_t count) __attribute__((always_inline)) {
          const float factor = factors[block];
          for (int64_t i = first; i < first + count; ++i) {
            codes[i] = static_cast<uint16_t>(to_e4m3(row.values[i] / factor));
          }
        });
    store(codes, row.columns, reinterpret_cast<uint8_t*>(to));
  }
};

}  // namespace

FERRY_FOR_EACH_PROCESSOR void raise_largest(const std::byte* values, DType dtype, int64_t columns,
                                            int64_t width, int32_t* largest) {
  if (dtype == DType::f32) return Loops::raise_largest<int32_t>(values, columns, width, largest);
  Loops::raise_largest<int16_t>(values, columns, width, largest);
}

FERRY_FOR_EACH_PROCESSOR void find_extremes(const BlockedRow& row, float* least, float* most) {
  Loops::find_extremes(row, least, most);
}

FERRY_FOR_EACH_PROCESSOR void encode_floats(QuantiseRule rule, const BlockedRow& row,
                                            const float* factors, bool multiplies,
                                            std::byte* codes) {
  Loops::encode_floats(rule, row, factors, multiplies, codes);
}

FERRY_FOR_EACH_PROCESSOR void encode_integers(const BlockedRow& row, const float* factors,
                                              const float* zeros, DType dtype, std::byte* codes) {
  Loops::encode_integers(row, factors, zeros, dtype, codes);
}

}  // namespace ferry
