// The residual connection: what a module gives is dropped out and added.
#pragma once

#include "trainer/model/pass.h"

namespace ferry {

/// y = x + dropout(change), of rows of `width` elements; `place` tells dropouts of one step apart.
/// x may be none: y is what is left of the change then.
void add_residual(Pass& pass, uint64_t place, int64_t width, kernels::ConstArray x,
                  kernels::ConstArray change, kernels::Array y);

/// The gradient of the change, from that of y: `dy` itself without dropout, else in pass.scratch.
kernels::ConstArray change_gradient(Pass& pass, uint64_t place, int64_t width,
                                    kernels::ConstArray dy);

}  // namespace ferry
