#include "ckpt/engine/elements/decode.h"

#include <algorithm>

#include "ckpt/base/cast.h"
#include "ckpt/base/processors.h"

namespace ferry {
namespace {

constexpr int32_t kNanE4m3 = 0x7f;

[[gnu::always_inline]] inline float e2m1_float(int32_t code) {
  constexpr uint32_t kTwice = 0xc8643210;  // twice the magnitudes of the eight codes, 4 bits each
  const auto twice = static_cast<int32_t>(kTwice >> ((code & 7) << 2) & 15);
  const float magnitude = static_cast<float>(twice) * 0.5F;
  return std::bit_cast<float>(std::bit_cast<int32_t>(magnitude) | (code & 8) << 28);
}

float value_of(Code code, DType stored, uint8_t bits) {
  if (code == Code::element) {
    return static_cast<float>(load_as_double(reinterpret_cast<const std::byte*>(&bits), stored));
  }
  return code == Code::e2m1 ? e2m1_float(bits) : bits;
}

// All codes, also those of subnormal numbers and NaN.
[[gnu::always_inline]] inline void decode_any_e4m3(const uint8_t* codes, int64_t count,
                                                   float* values) {
  for (int64_t i = 0; i < count; ++i) {
    const int32_t code = codes[i], magnitude = code & 0x7f, sign = (code & 0x80) << 24;
    const auto finite = std::bit_cast<int32_t>(e4m3_float(sign, magnitude));
    values[i] = std::bit_cast<float>(magnitude == kNanE4m3 ? sign | 0x7fc00000 : finite);
  }
}

// Most weights are normal numbers, whose bits have but to be moved to where fp32 has them.
FERRY_FOR_EACH_PROCESSOR void decode_e4m3(const uint8_t* codes, int64_t count, float* values) {
  constexpr int64_t kAtOnce = 128;  // of which all or not all are normal
  constexpr int32_t kSmallestNormal = 8, kBiases = (127 - 7) << 23;
  constexpr auto kSignAndMagnitude = static_cast<int32_t>(0x87f00000);
  for (; count >= kAtOnce; count -= kAtOnce, codes += kAtOnce, values += kAtOnce) {
    uint8_t furthest = 0;
    for (int64_t i = 0; i < kAtOnce; ++i) {
      const auto above = static_cast<uint8_t>((codes[i] & 0x7f) - kSmallestNormal);
      furthest = furthest > above ? furthest : above;
    }
    if (furthest >= kNanE4m3 - kSmallestNormal) {
      decode_any_e4m3(codes, kAtOnce, values);
      continue;
    }
    for (int64_t i = 0; i < kAtOnce; ++i) {
      const int32_t extended = static_cast<int8_t>(codes[i]);
      values[i] = std::bit_cast<float>((extended << 20 & kSignAndMagnitude) + kBiases);
    }
  }
  decode_any_e4m3(codes, count, values);
}

// Bytes of two codes, of which each is decoded by value_of.
template <typename ValueOf>
[[gnu::always_inline]] inline void decode_pairs(const uint8_t* codes, int64_t bytes, float* values,
                                                const ValueOf& value_of) {
  constexpr int64_t kBytes = 256;
  uint8_t apart[2 * kBytes];
  for (int64_t first = 0; first < bytes; first += kBytes) {
    const int64_t count = std::min(kBytes, bytes - first);
    for (int64_t i = 0; i < count; ++i) {
      const uint8_t both = codes[first + i];
      apart[2 * i] = both & 15;
      apart[2 * i + 1] = both >> 4;
    }
    for (int64_t i = 0; i < 2 * count; ++i) values[2 * first + i] = value_of(apart[i]);
  }
}

FERRY_FOR_EACH_PROCESSOR void decode_e2m1(const uint8_t* codes, int64_t bytes, float* values) {
  decode_pairs(
      codes, bytes, values,
      [](int32_t code) __attribute__((always_inline)) { return e2m1_float(code); });
}

FERRY_FOR_EACH_PROCESSOR void decode_u4(const uint8_t* codes, int64_t bytes, float* values) {
  decode_pairs(
      codes, bytes, values,
      [](int32_t code) __attribute__((always_inline)) { return static_cast<float>(code); });
}

FERRY_FOR_EACH_PROCESSOR void scale(const RowScales& row, int64_t count, float* values) {
  int64_t block = 0, left = row.block - row.into;  // codes that the block has still
  for (int64_t first = 0; first < count; ++block, left = row.block) {
    const int64_t run = std::min(left, count - first);
    const float factor = row.scales[block];
    const float zero = row.zeros != nullptr ? row.zeros[block] : row.zero;
    for (int64_t i = 0; i < run; ++i) values[first + i] = (values[first + i] - zero) * factor;
    first += run;
  }
}

}  // namespace

Decoder::Decoder(Code code, DType stored)
    : code_(code), is_e4m3_(code == Code::element && stored == DType::f8_e4m3) {
  for (size_t byte = 0; byte < values_.size(); ++byte) {
    values_[byte] = value_of(code, stored, static_cast<uint8_t>(byte));
  }
}

void Decoder::decode(const std::byte* codes, int64_t first, int64_t count, const RowScales& row,
                     float* values) const {
  const auto* bytes = reinterpret_cast<const uint8_t*>(codes);
  if (is_e4m3_) {
    decode_e4m3(bytes + first, count, values);
  } else if (codes_per_byte(code_) == 1) {
    for (int64_t i = 0; i < count; ++i) values[i] = values_[bytes[first + i]];
  } else {
    const auto decode_bytes = code_ == Code::e2m1 ? decode_e2m1 : decode_u4;
    const int64_t odd = first % 2, pairs = (count - odd) / 2;
    if (odd != 0) values[0] = values_[bytes[first / 2] >> 4];
    decode_bytes(bytes + (first + odd) / 2, pairs, values + odd);
    if (odd + 2 * pairs < count) values[count - 1] = values_[bytes[(first + count) / 2] & 15];
  }
  scale(row, count, values);
}

}  // namespace ferry
