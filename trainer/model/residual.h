// The residual connection: what a module gives is dropped out and added.
#pragma once

#include "trainer/model/pass.h"

namespace ferry {

/// What of a layer drops out.
enum class DropoutPart : uint8_t { attention, behind_attention, behind_mlp };

/// Tells the dropouts of one step apart.
constexpr uint64_t dropout_place(int64_t layer, DropoutPart part) {
  return 3 * static_cast<uint64_t>(layer) + static_cast<uint64_t>(part);
}

/// y = x + dropout(change), of rows of `width` elements; `place` tells dropouts apart.
/// x may be none: y is what is left of the change then.
void add_residual(Pass& pass, uint64_t place, int64_t width, kernels::ConstArray x,
                  kernels::ConstArray change, kernels::Array y);

/// The gradient of the change, from that of y: `dy` itself without dropout, else in pass.scratch.
kernels::ConstArray change_gradient(Pass& pass, uint64_t place, int64_t width,
                                    kernels::ConstArray dy);

}  // namespace ferry
