// Part of check(): entries that are quantised as they are written, and their scales.
#pragma once

#include "ckpt/core/plan.h"

namespace ferry {

/// internal when an entry cannot be quantised so, or when scales are written by none or by two.
void check_quantised(const Plan& plan);

}  // namespace ferry
