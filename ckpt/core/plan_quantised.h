// Tensors that are quantised as they are written: what the target has of each, and the part of
// check() on them.
#pragma once

#include <vector>

#include "ckpt/core/plan.h"
#include "ckpt/core/quantised.h"

namespace ferry {

/// A target entry next to the codes.
struct QuantisedOutput {
  enum Kind : uint8_t {
    scales,  // one a block
    global,  // one in all
    zeros,   // one a block, of 4 bits, eight rows of blocks in an element
  };
  Kind kind = scales;
  DType dtype = DType::f32;
};

std::vector<QuantisedOutput> parts_of(const Quantise& how);

/// The type of an entry that holds codes, and how many are in an element of it.
DType codes_type(QuantiseRule rule) noexcept;
int64_t codes_per_element(QuantiseRule rule) noexcept;
int64_t codes_in_byte(QuantiseRule rule) noexcept;

/// True where a scale depends on all values of a tensor, which are read once more for it.
bool needs_largest(QuantiseRule rule) noexcept;

/// Shape of what a recipe makes for an entry: of values that are quantised their own.
const Dims& made_shape(const Entry& entry, const Recipe& recipe) noexcept;

/// internal when an entry cannot be quantised so, or when a part is written by none or by two.
void check_quantised(const Plan& plan);

}  // namespace ferry
