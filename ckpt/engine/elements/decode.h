// Codes in memory to the values that they stand for.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "ckpt/base/dtype.h"
#include "ckpt/core/quantised.h"

namespace ferry {

/// The finite e4m3 number with the sign bit of `sign` and these other bits, without a branch, so
/// that a compiler makes vectors of loops.
[[gnu::always_inline]] inline float e4m3_float(int32_t sign, int32_t magnitude) {
  const auto subnormal = std::bit_cast<int32_t>(static_cast<float>(magnitude) * 0x1p-9F);
  const int32_t normal = (magnitude << 20) + ((127 - 7) << 23);
  return std::bit_cast<float>(sign | (magnitude < 8 ? subnormal : normal));
}

/// The scales of codes that follow each other in a row.
struct RowScales {
  const float* scales = nullptr;  // one a block
  const float* zeros = nullptr;   // the same; null: `zero` for all
  float zero = 0;
  int64_t block = 1;  // codes that have one scale
  int64_t into = 0;   // codes of the first block that come before the first one

  /// The scales from `codes` codes later on.
  RowScales after(int64_t codes) const {
    RowScales later = *this;
    const int64_t blocks = (into + codes) / block;
    later.scales += blocks;
    if (zeros != nullptr) later.zeros += blocks;
    later.into = (into + codes) % block;
    return later;
  }
};

/// Tables of what codes stand for. Safe from several threads.
class Decoder {
 public:
  /// `stored`: of the elements that codes of Code::element are.
  Decoder(Code code, DType stored);

  /// values[i] = (codes[first + i] - zero point) x scale, in fp32, and then rounded to `dtype`.
  /// `codes` is where a row of bytes begins; values follow each other.
  void decode(const std::byte* codes, int64_t first, int64_t count, RowScales scales, DType dtype,
              std::byte* values) const;

 private:
  void decode_exact(const uint8_t* codes, int64_t first, int64_t count, const RowScales& scales,
                    float* values) const;

  Code code_;
  bool is_e4m3_;
  std::array<float, 256> values_{};  // of each code that a byte may be
};

}  // namespace ferry
