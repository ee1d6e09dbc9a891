// The residual connection: what a module gives is dropped out and added.
#pragma once

#include "trainer/model/pass/pass.h"

namespace ferry {

/// What of a layer drops out.
enum class DropoutPart : uint8_t { attention, behind_attention, behind_mlp };

/// Tells the dropouts of one step apart.
constexpr uint64_t dropout_place(int64_t layer, DropoutPart part) {
  return 3 * static_cast<uint64_t>(layer) + static_cast<uint64_t>(part);
}

/// x + dropout(change), not added up yet: whatever reads the sum next computes it. x may be none:
/// what is left of the change, then.
struct OpenSum {
  kernels::ConstArray x, change;
  uint64_t place = 0;  // tells dropouts apart

  explicit operator bool() const noexcept { return static_cast<bool>(change); }
};

/// y becomes the sum, of rows of `width` elements.
void add_residual(Pass& pass, int64_t width, const OpenSum& sum, kernels::Array y);

/// The gradient of the change, from that of y: `dy` itself without dropout, else in pass.scratch.
kernels::ConstArray change_gradient(Pass& pass, uint64_t place, int64_t width,
                                    kernels::ConstArray dy);

}  // namespace ferry
