// Conversion of runs of elements between floating-point types.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ckpt/base/dtype.h"

namespace ferry {

/// True when convert() can: both floating-point (f4x2 is not), or equal.
bool can_convert(DType from, DType to) noexcept;

/// Converts `count` elements. `in_stride` and `out_stride` are bytes between elements. Rounds once,
/// to nearest even. A finite value beyond the target's range becomes infinity, or NaN where the
/// target has no infinity (as PyTorch does for float8_e4m3fn); NaN stays NaN. Needs no alignment.
void convert(const std::byte* in, int64_t in_stride, DType from, std::byte* out, int64_t out_stride,
             DType to, int64_t count);

/// Value of one element of any dtype but f4x2 and complex ones, as a double (64-bit integers
/// round).
double load_as_double(const std::byte* at, DType dtype);

}  // namespace ferry
