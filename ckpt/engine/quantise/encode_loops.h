// The loops over all values of a row that quantising consists of, as vectors that the processor
// has.
#pragma once

#include <cstdint>

#include "ckpt/base/dtype.h"
#include "ckpt/core/recipe.h"

namespace ferry {

/// A value rounded to float8_e4m3fn, at most 448.
uint8_t e4m3_of(float value);

/// Values of a row, and its blocks of `width`, the last of which may be cut.
struct BlockedRow {
  const float* values = nullptr;
  int64_t columns = 0, width = 1;
};

/// The larger of largest[block] and the magnitudes of the values of each block, as bits of fp32,
/// which have the same order; a NaN's are larger than all others.
void raise_largest(const BlockedRow& row, int32_t* largest);

/// The extremes of each block and zero.
void find_extremes(const BlockedRow& row, float* least, float* most);

/// Each value times its block's factor, or divided by it.
void scale_row(const BlockedRow& row, const float* factors, bool multiplies, float* quotients);

/// The code of each quotient by a rule of floats. Blocks are too short for one loop with the one
/// above: those of 16 take a fifth longer so.
void round_row(QuantiseRule rule, const float* quotients, int64_t count, uint8_t* codes);

/// The codes of 4 bits of quotients by the factors plus the zero points (null: none), where each
/// result is rounded to the type.
void encode_integers(const BlockedRow& row, const float* factors, const float* zeros, DType dtype,
                     uint8_t* codes);

}  // namespace ferry
