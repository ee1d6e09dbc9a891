// ferry.Array: elements in memory, and what they are.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <memory>
#include <span>

#include "ckpt/base/box.h"
#include "ckpt/base/dtype.h"

namespace ferry::python {

/// Row-major and little-endian. Copies refer to the same memory.
struct Array {
  DType dtype = DType::f32;
  Dims shape;
  std::span<std::byte> bytes;  // valid as long as `owner` or a copy of it
  std::shared_ptr<void> owner;
};

/// One whose memory has been allocated and holds anything.
Array new_array(DType dtype, const Dims& shape);

}  // namespace ferry::python
