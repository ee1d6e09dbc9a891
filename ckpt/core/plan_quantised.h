// Blocks of quantised tensors, and the part of check() on those that are quantised as they are
// written.
#pragma once

#include "ckpt/core/plan.h"

namespace ferry {

/// How many blocks a shape has along each axis; the last may be cut. `block` is of its rank, and
/// all its extents are positive.
Dims block_grid(const Dims& shape, const Dims& block);

/// internal when an entry cannot be quantised so, or when scales are written by none or by two.
void check_quantised(const Plan& plan);

}  // namespace ferry
