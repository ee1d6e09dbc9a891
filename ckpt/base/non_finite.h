// NaN and infinite values among elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ckpt/base/dtype.h"

namespace ferry {

/// Whether elements of this type may be NaN or infinite.
bool may_be_non_finite(DType dtype) noexcept;

/// Counts in `bytes`, a whole number of elements, of any alignment. Each half of a complex element
/// counts.
NonFinite count_non_finite(std::span<const std::byte> bytes, DType dtype) noexcept;

}  // namespace ferry
