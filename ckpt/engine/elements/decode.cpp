#include "ckpt/engine/elements/decode.h"

#include <algorithm>

#include "ckpt/base/cast.h"

namespace ferry {
namespace {

constexpr std::array<float, 8> kE2m1 = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};

float value_of(Code code, DType stored, uint8_t bits) {
  if (code == Code::element) {
    return static_cast<float>(load_as_double(reinterpret_cast<const std::byte*>(&bits), stored));
  }
  if (code != Code::e2m1) return bits;
  return (bits & 8) != 0 ? -kE2m1[bits & 7] : kE2m1[bits & 7];
}

// `count` codes of one block.
void decode_bytes(const float* table, const uint8_t* codes, int64_t count, float scale, float zero,
                  float* values) {
  for (int64_t i = 0; i < count; ++i) values[i] = (table[codes[i]] - zero) * scale;
}

// The same of pairs: bytes of two codes.
void decode_pairs(const float* table, const uint8_t* codes, int64_t pairs, float scale, float zero,
                  float* values) {
  for (int64_t i = 0; i < pairs; ++i) {
    const float* both = table + 2 * codes[i];
    values[2 * i] = (both[0] - zero) * scale;
    values[2 * i + 1] = (both[1] - zero) * scale;
  }
}

}  // namespace

Decoder::Decoder(Code code, DType stored) : has_pairs_(codes_per_byte(code) == 2) {
  for (size_t byte = 0; byte < kBytes; ++byte) {
    const auto bits = static_cast<uint8_t>(byte);
    if (has_pairs_) {
      values_[2 * byte] = value_of(code, stored, bits & 15);
      values_[2 * byte + 1] = value_of(code, stored, bits >> 4);
    } else {
      values_[byte] = value_of(code, stored, bits);
    }
  }
}

void Decoder::decode(const std::byte* codes, int64_t first, int64_t count, const RowScales& row,
                     float* values) const {
  const auto* bytes = reinterpret_cast<const uint8_t*>(codes);
  const float* table = values_.data();
  int64_t block = 0, left = row.block - row.into;  // codes that the block has still
  for (int64_t end = first + count; first < end; ++block, left = row.block) {
    int64_t run = std::min(left, end - first);
    const float scale = row.scales[block];
    const float zero = row.zeros != nullptr ? row.zeros[block] : row.zero;
    if (!has_pairs_) {
      decode_bytes(table, bytes + first, run, scale, zero, values);
    } else {
      float* at = values;
      if (first % 2 != 0) {
        *at++ = (table[2 * bytes[first / 2] + 1] - zero) * scale;
        ++first, --run, ++values;
      }
      decode_pairs(table, bytes + first / 2, run / 2, scale, zero, at);
      if (run % 2 != 0) at[run - 1] = (table[2 * bytes[(first + run) / 2]] - zero) * scale;
    }
    first += run;
    values += run;
  }
}

}  // namespace ferry
