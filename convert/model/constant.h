// Tensors that a family fixes.
#pragma once

#include <cstdint>
#include <string>

#include "ckpt/base/dtype.h"

namespace ferry {

/// Little-endian bytes of `count` elements of `value`.
std::string constant_bytes(double value, DType dtype, int64_t count);

}  // namespace ferry
