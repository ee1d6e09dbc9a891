#include "ckpt/engine/quantise/encode_loops.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "ckpt/base/processors.h"

namespace ferry {
namespace {

constexpr int32_t kMagnitudeBits = 0x7fffffff;
constexpr int32_t kInfinityBits = 0x7f800000;
constexpr int32_t kSmallestNormal = 0x3c800000;  // 2^-6
constexpr int32_t kLargestBits = 0x43e00000;     // 448
constexpr int32_t kOneBits = 0x3f800000;
constexpr float kToWhole = 12582912;  // 1.5 x 2^23: sums are rounded to whole numbers

[[gnu::always_inline]] inline uint8_t to_e4m3(float value) {
  const auto bits = std::bit_cast<int32_t>(value);
  const int32_t given = bits & kMagnitudeBits;
  const int32_t magnitude = choose(given < kLargestBits, given, kLargestBits);
  const int32_t odd = magnitude >> 20 & 1;
  const int32_t normal = (magnitude - ((127 - 7) << 23) + 0x7ffff + odd) >> 20;
  // The unit of 2^14 is that of the subnormals, 2^-9: the sum is rounded to it.
  const int32_t subnormal =
      std::bit_cast<int32_t>(std::bit_cast<float>(magnitude) + 0x1p14f) - 0x46800000;
  const int32_t finite = choose(magnitude < kSmallestNormal, subnormal, normal);
  return static_cast<uint8_t>((bits >> 24 & 0x80) | choose(given > kInfinityBits, 0x7f, finite));
}

// The magnitude as a code of e2m1, at most that of 6; halfway between two the even one.
[[gnu::always_inline]] inline int32_t e2m1_magnitude(float value) {
  const int32_t magnitude = std::bit_cast<int32_t>(value) & kMagnitudeBits;
  const int32_t odd = magnitude >> 22 & 1;
  const int32_t normal = ((magnitude + 0x1fffff + odd) >> 22) - ((127 - 1) << 1);
  // The unit of 2^22 is that of the numbers below one, 1/2.
  const int32_t subnormal =
      std::bit_cast<int32_t>(std::bit_cast<float>(magnitude) + 0x1p22f) - 0x4a800000;
  const int32_t code = choose(magnitude < kOneBits, subnormal, normal);
  return choose(code > 7, 7, code);
}

[[gnu::always_inline]] inline float rounded_to_bf16(float value) {
  const auto bits = std::bit_cast<int32_t>(value);
  const int32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) & ~0xffff;
  return std::bit_cast<float>(choose((bits & kMagnitudeBits) > kInfinityBits, bits, rounded));
}

// Quotients are far smaller than the largest fp16.
[[gnu::always_inline]] inline float rounded_to_half(float value) {
  constexpr int32_t kSmallestHalf = 0x38800000;  // 2^-14: below it the unit is that of 1/2 in fp32
  const auto bits = std::bit_cast<int32_t>(value);
  const int32_t magnitude = bits & kMagnitudeBits;
  const int32_t normal = (magnitude + 0xfff + (magnitude >> 13 & 1)) & ~0x1fff;
  const auto small = std::bit_cast<int32_t>(std::bit_cast<float>(magnitude) + 0.5F - 0.5F);
  const int32_t finite = choose(magnitude < kSmallestHalf, small, normal);
  const int32_t result = choose(magnitude > kInfinityBits, magnitude, finite);
  return std::bit_cast<float>(result | (bits & ~kMagnitudeBits));
}

[[gnu::always_inline]] inline uint8_t to_int4(float value) {
  const auto code = static_cast<int32_t>(value + kToWhole - kToWhole) + 8;
  return static_cast<uint8_t>(choose(code < 0, 0, choose(code > 15, 15, code)));
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

// The larger ones of neighbours.
template <int64_t kCount>
[[gnu::always_inline]] inline void halve(const int32_t* __restrict from, int32_t* __restrict to) {
  for (int64_t i = 0; i < kCount; ++i) {
    const int32_t one = from[2 * i], other = from[2 * i + 1];
    to[i] = one > other ? one : other;
  }
}

constexpr int64_t kHalvedAtOnce = 512;  // values of blocks of 16

struct Loops {
  // Blocks of 16 are too short for a loop each.
  [[gnu::always_inline]] static void raise_by_halving(const float* values, int32_t* largest) {
    int32_t bits[kHalvedAtOnce], half[kHalvedAtOnce / 2];
    for (int64_t i = 0; i < kHalvedAtOnce; ++i) {
      bits[i] = std::bit_cast<int32_t>(values[i]) & kMagnitudeBits;
    }
    halve<kHalvedAtOnce / 2>(bits, half);
    halve<kHalvedAtOnce / 4>(half, bits);
    halve<kHalvedAtOnce / 8>(bits, half);
    halve<kHalvedAtOnce / 16>(half, bits);
    for (int64_t i = 0; i < kHalvedAtOnce / 16; ++i) {
      largest[i] = largest[i] > bits[i] ? largest[i] : bits[i];
    }
  }

  [[gnu::always_inline]] static void raise_largest(BlockedRow row, int32_t* largest) {
    while (row.width == 16 && row.columns >= kHalvedAtOnce) {
      raise_by_halving(row.values, largest);
      row.values += kHalvedAtOnce;
      row.columns -= kHalvedAtOnce;
      largest += kHalvedAtOnce / 16;
    }
    each_block(
        row, [&](int64_t block, int64_t first, int64_t count) __attribute__((always_inline)) {
          const float* const values = row.values + first;
          int32_t found = largest[block];
          for (int64_t i = 0; i < count; ++i) {
            const int32_t bits = std::bit_cast<int32_t>(values[i]) & kMagnitudeBits;
            found = found > bits ? found : bits;
          }
          largest[block] = found;
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

  template <typename Round>
  [[gnu::always_inline]] static void encode_rounded(const BlockedRow& row, const float* factors,
                                                    const float* zeros, const Round& rounded,
                                                    uint8_t* __restrict codes) {
    each_block(
        row, [&](int64_t block, int64_t first, int64_t count) __attribute__((always_inline)) {
          const float* const __restrict values = row.values + first;
          uint8_t* const __restrict to = codes + first;
          const float factor = factors[block];
          if (zeros == nullptr) {
            for (int64_t i = 0; i < count; ++i) to[i] = to_int4(rounded(values[i] / factor));
            return;
          }
          const float zero = zeros[block];
          for (int64_t i = 0; i < count; ++i) {
            to[i] = to_int4(rounded(rounded(values[i] / factor) + zero));
          }
        });
  }

  [[gnu::always_inline]] static void encode_integers(const BlockedRow& row, const float* factors,
                                                     const float* zeros, DType dtype,
                                                     uint8_t* codes) {
    if (dtype == DType::bf16) {
      return encode_rounded(
          row, factors, zeros,
          [](float value) __attribute__((always_inline)) { return rounded_to_bf16(value); }, codes);
    }
    if (dtype == DType::f16) {
      return encode_rounded(
          row, factors, zeros,
          [](float value) __attribute__((always_inline)) { return rounded_to_half(value); }, codes);
    }
    encode_rounded(
        row, factors, zeros, [](float value) __attribute__((always_inline)) { return value; },
        codes);
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
                                               int64_t count, uint8_t* __restrict codes) {
    switch (rule) {
      case QuantiseRule::mxfp4_up:
        for (int64_t i = 0; i < count; ++i) {
          const int32_t sign = std::bit_cast<int32_t>(quotients[i]) >> 28 & 8;
          codes[i] = static_cast<uint8_t>(sign | e2m1_magnitude(quotients[i]));
        }
        return;
      case QuantiseRule::mxfp4:
      case QuantiseRule::nvfp4:
      case QuantiseRule::nvfp4_divided:
        // A number that is rounded to zero keeps its sign; one that is zero has none.
        for (int64_t i = 0; i < count; ++i) {
          const int32_t sign = static_cast<int32_t>(quotients[i] < 0) << 3;
          codes[i] = static_cast<uint8_t>(sign | e2m1_magnitude(quotients[i]));
        }
        return;
      default:
        for (int64_t i = 0; i < count; ++i) codes[i] = to_e4m3(quotients[i]);
    }
  }
};

}  // namespace

uint8_t e4m3_of(float value) { return to_e4m3(value); }

FERRY_FOR_EACH_PROCESSOR void raise_largest(const BlockedRow& row, int32_t* largest) {
  Loops::raise_largest(row, largest);
}

FERRY_FOR_EACH_PROCESSOR void find_extremes(const BlockedRow& row, float* least, float* most) {
  Loops::find_extremes(row, least, most);
}

FERRY_FOR_EACH_PROCESSOR void scale_row(const BlockedRow& row, const float* factors,
                                        bool multiplies, float* quotients) {
  Loops::scale_row(row, factors, multiplies, quotients);
}

FERRY_FOR_EACH_PROCESSOR void round_row(QuantiseRule rule, const float* quotients, int64_t count,
                                        uint8_t* codes) {
  Loops::round_row(rule, quotients, count, codes);
}

FERRY_FOR_EACH_PROCESSOR void encode_integers(const BlockedRow& row, const float* factors,
                                              const float* zeros, DType dtype, uint8_t* codes) {
  Loops::encode_integers(row, factors, zeros, dtype, codes);
}

}  // namespace ferry
