#include "ckpt/engine/elements/decode.h"

#include <algorithm>
#include <cmath>

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

FERRY_FOR_EACH_PROCESSOR void decode_e4m3(const uint8_t* codes, int64_t count, float* values) {
  for (int64_t i = 0; i < count; ++i) {
    const int32_t code = codes[i], magnitude = code & 0x7f, sign = (code & 0x80) << 24;
    const auto finite = std::bit_cast<int32_t>(e4m3_float(sign, magnitude));
    values[i] = std::bit_cast<float>(magnitude == kNanE4m3 ? sign | 0x7fc00000 : finite);
  }
}

constexpr int64_t kCheckedAtOnce = 128;  // codes of which all or not all are normal

[[gnu::always_inline]] inline bool are_normal_e4m3(const uint8_t* codes) {
  constexpr int32_t kSmallestNormal = 8;
  uint8_t furthest = 0;
  for (int64_t i = 0; i < kCheckedAtOnce; ++i) {
    const auto above = static_cast<uint8_t>((codes[i] & 0x7f) - kSmallestNormal);
    furthest = furthest > above ? furthest : above;
  }
  return furthest < kNanE4m3 - kSmallestNormal;
}

// A normal number has but to be moved to where fp32 has its bits. Most weights are.
[[gnu::always_inline]] inline float normal_e4m3_float(uint8_t code) {
  constexpr int32_t kBiases = (127 - 7) << 23;
  constexpr auto kSignAndMagnitude = static_cast<int32_t>(0x87f00000);
  const int32_t extended = static_cast<int8_t>(code);
  return std::bit_cast<float>((extended << 20 & kSignAndMagnitude) + kBiases);
}

// Normal numbers times a finite factor, as bf16: no NaN.
[[gnu::always_inline]] inline void scale_normal_e4m3(const uint8_t* codes, int64_t count,
                                                     float factor, uint16_t* values) {
  for (int64_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<uint32_t>(normal_e4m3_float(codes[i]) * factor);
    values[i] = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
}

// The way of nearly all weights from e4m3 to bf16, in one loop instead of one for each step: how
// many codes from the first one on were met, all of them normal. Zero points are 0.
FERRY_FOR_EACH_PROCESSOR int64_t decode_normal_e4m3(const uint8_t* codes, int64_t count,
                                                    const RowScales& row, uint16_t* values) {
  constexpr int64_t kShortBlock = 32;
  int64_t block = 0, left = row.block - row.into, done = 0;
  for (; done + kCheckedAtOnce <= count && are_normal_e4m3(codes + done); done += kCheckedAtOnce) {
    for (int64_t first = 0, run = 0; first < kCheckedAtOnce; first += run) {
      run = left < kCheckedAtOnce - first ? left : kCheckedAtOnce - first;
      const float factor = row.scales[block];
      if (!std::isfinite(factor)) return done;
      const uint8_t* const from = codes + done + first;
      uint16_t* const to = values + done + first;
      if (run == kCheckedAtOnce) {
        scale_normal_e4m3(from, kCheckedAtOnce, factor, to);
      } else if (run == kShortBlock) {
        scale_normal_e4m3(from, kShortBlock, factor, to);
      } else {
        scale_normal_e4m3(from, run, factor, to);
      }
      left -= run;
      if (left == 0) ++block, left = row.block;
    }
  }
  return done;
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

void Decoder::decode(const std::byte* codes, int64_t first, int64_t count, RowScales scales,
                     DType dtype, std::byte* values) const {
  constexpr int64_t kAtOnce = 2048;  // values that are fp32 before they are rounded
  const auto* bytes = reinterpret_cast<const uint8_t*>(codes);
  const bool is_aligned = reinterpret_cast<uintptr_t>(values) % sizeof(uint16_t) == 0;
  const bool is_short =
      is_e4m3_ && dtype == DType::bf16 && is_aligned && scales.zeros == nullptr && scales.zero == 0;
  std::array<float, kAtOnce> exact;
  for (int64_t some = 0; count > 0; first += some, count -= some) {
    some = 0;
    if (is_short) {
      some = decode_normal_e4m3(bytes + first, count, scales, reinterpret_cast<uint16_t*>(values));
    }
    if (some == 0) {
      some = std::min(is_short ? kCheckedAtOnce : kAtOnce, count);
      decode_exact(bytes, first, some, scales, exact.data());
      convert(reinterpret_cast<const std::byte*>(exact.data()), sizeof(float), DType::f32, values,
              size_bytes(dtype), dtype, some);
    }
    scales = scales.after(some);
    values += some * size_bytes(dtype);
  }
}

void Decoder::decode_exact(const uint8_t* bytes, int64_t first, int64_t count, const RowScales& row,
                           float* values) const {
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
