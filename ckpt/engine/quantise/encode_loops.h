// The loops over all values of a row that quantising consists of, as vectors that the processor
// has.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "ckpt/base/dtype.h"
#include "ckpt/core/recipe.h"

namespace ferry {

/// Values that are encoded at once: they and their quotients stay in a core's first cache, where
/// they take less time to make twice than to bring from further away.
constexpr int64_t kEncodedAtOnce = 2048;

constexpr float kLargestE4m3 = 448, kLargestE2m1 = 6;
constexpr float kLowInt4 = -8, kHighInt4 = 7, kRangeInt4 = 15;
constexpr float kToWhole = 12582912;  // 1.5 x 2^23: sums are rounded to whole numbers

/// Rounds to nearest even. A NaN must be one of bf16, whose lower half is 0.
[[gnu::always_inline]] inline float rounded_to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000);
}

/// Values of a row, and its blocks of `width`, the last of which may be cut.
struct BlockedRow {
  const float* values = nullptr;
  int64_t columns = 0, width = 1;
};

/// The larger of largest[block] and the magnitudes of each block's values, which are stored as
/// bf16, fp16 or fp32: as bits of that type, which have the order of the numbers. A NaN's are
/// larger than all others.
void raise_largest(const std::byte* values, DType dtype, int64_t columns, int64_t width,
                   int32_t* largest);

/// The extremes of each block and zero.
void find_extremes(const BlockedRow& row, float* least, float* most);

/// The codes by a rule of floats of each value times its block's factor, or divided by it; those of
/// 4 bits two a byte, the first in its low half. At most kEncodedAtOnce values.
void encode_floats(QuantiseRule rule, const BlockedRow& row, const float* factors, bool multiplies,
                   std::byte* codes);

/// The codes of 4 bits, two a byte, of quotients by the factors plus the zero points (null: none),
/// where each result is rounded to the type. At most kEncodedAtOnce values.
void encode_integers(const BlockedRow& row, const float* factors, const float* zeros, DType dtype,
                     std::byte* codes);

}  // namespace ferry
