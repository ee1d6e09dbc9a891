// How far apart the values of two tensors are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ckpt/base/dtype.h"
#include "ops/diff.h"

namespace ferry {

/// True for types whose elements are numbers to compare: all but complex and packed ones.
bool has_values(DType dtype) noexcept;

/// Compares the elements of two runs that begin at element `first` of their tensors. Without a
/// tolerance elements of one type are equal when their bits are; otherwise, and across types, when
/// their values are, or are within either tolerance, NaN being equal to NaN. Integers are compared
/// exactly. Types that have no values are compared by their bytes and must be the same.
ValueDifference compare(std::span<const std::byte> a, DType dtype_a, std::span<const std::byte> b,
                        DType dtype_b, int64_t first, const Tolerance& tolerance = {});

}  // namespace ferry
