// The conversions that models need, fast.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ckpt/base/dtype.h"

namespace ferry {

/// What convert() does, bit for bit, for the pairs of dtypes that have a short way; false, with
/// nothing done, for the others.
bool convert_fast(const std::byte* in, int64_t in_stride, DType from, std::byte* out,
                  int64_t out_stride, DType to, int64_t count);

}  // namespace ferry
