#include "ckpt/base/box.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ckpt/base/checked.h"

namespace ferry {

int64_t element_count(const Dims& shape, std::string_view what) {
  int64_t count = 1;
  bool empty = false;
  for (int64_t extent : shape) {
    if (extent < 0)
      fail(ErrorKind::corrupt, "{}: negative extent in shape {}", what, to_string(shape));
    // An empty axis makes the product 0, but the others must still be sane.
    if (extent == 0)
      empty = true;
    else
      count = checked_multiply(count, extent, what);
  }
  return empty ? 0 : count;
}

Dims row_major_strides(const Dims& shape) {
  Dims strides(shape.size());
  int64_t stride = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    strides[axis] = stride;
    stride *= std::max<int64_t>(shape[axis], 1);  // as PyTorch, of empty shapes too
  }
  return strides;
}

std::string to_string(const Dims& dims) { return fmt::format("[{}]", fmt::join(dims, ", ")); }

bool is_inside(const Box& box, const Dims& shape) noexcept {
  if (box.offset.size() != shape.size() || box.size.size() != shape.size()) return false;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (box.offset[axis] < 0 || box.size[axis] < 0) return false;
    if (box.offset[axis] > shape[axis] || box.size[axis] > shape[axis] - box.offset[axis])
      return false;
  }
  return true;
}

bool overlaps(const Box& a, const Box& b) noexcept {
  for (size_t axis = 0; axis < a.size.size(); ++axis) {
    if (a.size[axis] == 0 || b.size[axis] == 0) return false;
    if (a.offset[axis] >= b.offset[axis] + b.size[axis]) return false;
    if (b.offset[axis] >= a.offset[axis] + a.size[axis]) return false;
  }
  return true;
}

Box intersection(const Box& a, const Box& b) {
  Box both = a;
  for (size_t axis = 0; axis < a.size.size(); ++axis) {
    const int64_t begin = std::max(a.offset[axis], b.offset[axis]);
    const int64_t end = std::min(a.offset[axis] + a.size[axis], b.offset[axis] + b.size[axis]);
    both.offset[axis] = begin;
    both.size[axis] = std::max<int64_t>(0, end - begin);
  }
  return both;
}

std::string to_string(const Box& box) {
  std::string text = "[";
  // Messages also show boxes that are refused, whose two lists may differ in length.
  for (size_t axis = 0; axis < std::min(box.offset.size(), box.size.size()); ++axis) {
    text += fmt::format("{}{}:{}", axis ? ", " : "", box.offset[axis],
                        box.offset[axis] + box.size[axis]);
  }
  return text + "]";
}

}  // namespace ferry
