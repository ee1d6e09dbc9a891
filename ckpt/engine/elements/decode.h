// Codes in memory to the values that they stand for.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "ckpt/base/processors.h"
#include "ckpt/core/quantised.h"

namespace ferry {

/// The finite number with the sign bit of `sign` and these bits of a smaller format, whose mantissa
/// has `kMantissa` bits and whose smallest number but 0 is 2^kLeast. Without a branch, so that a
/// compiler makes vectors of loops.
template <int kMantissa, int kLeast>
[[gnu::always_inline]] inline float small_float(int32_t sign, int32_t magnitude) {
  constexpr int32_t kOne = 127 + kLeast + kMantissa - 1;  // fp32's exponent of one that counts as 0
  constexpr auto kUnit = std::bit_cast<float>((127 + kLeast) << 23);
  const auto subnormal = std::bit_cast<int32_t>(static_cast<float>(magnitude) * kUnit);
  const int32_t normal = (magnitude << (23 - kMantissa)) + (kOne << 23);
  return std::bit_cast<float>(sign | choose(magnitude < 1 << kMantissa, subnormal, normal));
}

/// The same of an e4m3 number.
[[gnu::always_inline]] inline float e4m3_float(int32_t sign, int32_t magnitude) {
  return small_float<3, -9>(sign, magnitude);
}

/// The scales of codes that follow each other in a row.
struct RowScales {
  const float* scales = nullptr;  // one a block
  const float* zeros = nullptr;   // the same; null: `zero` for all
  float zero = 0;
  int64_t block = 1;  // codes that have one scale
  int64_t into = 0;   // codes of the first block that come before the first one
};

/// Tables of what codes stand for. Safe from several threads.
class Decoder {
 public:
  /// `stored`: of the elements that codes of Code::element are.
  Decoder(Code code, DType stored);

  /// values[i] = (codes[first + i] - zero point) x scale, in fp32. `codes` is where a row of bytes
  /// begins.
  void decode(const std::byte* codes, int64_t first, int64_t count, const RowScales& scales,
              float* values) const;

 private:
  Code code_;
  bool is_e4m3_;
  std::array<float, 256> values_{};  // of each code that a byte may be
};

}  // namespace ferry
