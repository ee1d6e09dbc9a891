#include "ckpt/engine/elements/decode.h"

#include <algorithm>

#include "ckpt/base/cast.h"

namespace ferry {
namespace {

[[gnu::always_inline]] inline float e2m1_float(int32_t code) {
  return small_float<1, -1>((code & 8) << 28, code & 7);
}

float value_of(Code code, DType stored, uint8_t bits) {
  if (code == Code::element) {
    return static_cast<float>(load_as_double(reinterpret_cast<const std::byte*>(&bits), stored));
  }
  return code == Code::e2m1 ? e2m1_float(bits) : bits;
}

FERRY_FOR_EACH_PROCESSOR void decode_e4m3(const uint8_t* codes, int64_t count, float* values) {
  constexpr int32_t kNan = 0x7f;
  for (int64_t i = 0; i < count; ++i) {
    const int32_t code = codes[i], magnitude = code & 0x7f, sign = (code & 0x80) << 24;
    const auto finite = std::bit_cast<int32_t>(e4m3_float(sign, magnitude));
    values[i] = std::bit_cast<float>(choose(magnitude == kNan, sign | 0x7fc00000, finite));
  }
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
