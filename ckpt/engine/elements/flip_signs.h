// Changes signs of elements in memory.
#pragma once

#include <cstddef>
#include <vector>

#include "ckpt/base/math_bits.h"
#include "ckpt/engine/elements/strided_copy.h"

namespace ferry {

/// Flips the parts that `flips` names of every element that the loops reach by their target
/// strides.
void flip_signs(std::byte* out, int64_t element_bytes, SignFlips flips,
                const std::vector<StridedLoop>& loops);

}  // namespace ferry
