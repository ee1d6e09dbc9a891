// Shapes and boxes of global tensors: pure integer geometry, in elements.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ferry {

/// One number an axis, outermost first. Scalars have none.
using Dims = std::vector<int64_t>;

/// Number of elements of a shape (1 for a scalar). corrupt when an extent is negative or the
/// product overflows, naming `what`.
int64_t element_count(const Dims& shape, std::string_view what);

/// Row-major strides of `shape`, in elements.
Dims row_major_strides(const Dims& shape);

/// "[4, 32]"
std::string to_string(const Dims& dims);

/// Part of a global tensor: [offset, offset + size) along each axis.
struct Box {
  Dims offset;
  Dims size;

  static Box whole(const Dims& shape) { return {Dims(shape.size(), 0), shape}; }
  bool operator==(const Box&) const = default;
};

/// True when `box` has the rank of `shape` and is inside it.
bool is_inside(const Box& box, const Dims& shape) noexcept;

/// True when the two boxes, of one rank, share an element.
bool overlaps(const Box& a, const Box& b) noexcept;

/// What two boxes of one rank share; its size is 0 along each axis on which they do not meet.
Box intersection(const Box& a, const Box& b);

/// "[0:2, 0:32]"
std::string to_string(const Box& box);

}  // namespace ferry
