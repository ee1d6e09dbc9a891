// What an index of Python's, t[2:5, ..., -1], selects of a tensor.
#pragma once

#include <nanobind/nanobind.h>

#include "ckpt/base/box.h"
#include "python/bindings/array.h"

namespace ferry::python {

/// A box, of which every so manieth element along each axis is taken, forwards or backwards.
struct Selection {
  Box box;
  Dims steps;  // of elements; negative: from the last to the first
  Dims shape;  // of what is selected: without the axes that ints select from

  bool is_box() const noexcept;  // all steps are 1
};

/// `index` is an int, slice or Ellipsis, or a tuple of them. IndexError for ints out of range and
/// for too many axes, TypeError for anything else.
Selection select(nanobind::handle index, const Dims& shape);

/// The elements that are selected, of an array that has the box.
Array take_steps(const Array& box, const Selection& selection);

}  // namespace ferry::python
