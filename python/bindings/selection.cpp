#include "python/bindings/selection.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace ferry::python {
namespace {

namespace nb = nanobind;

bool is_ellipsis(nb::handle index) { return index.is(nb::ellipsis()); }

// One index an axis, Ellipsis and missing ones written out.
std::vector<nb::object> for_each_axis(nb::handle index, size_t rank) {
  std::vector<nb::object> given;
  if (nb::isinstance<nb::tuple>(index)) {
    for (const nb::handle one : index) given.push_back(nb::borrow(one));
  } else {
    given.push_back(nb::borrow(index));
  }
  const auto dots = std::count_if(given.begin(), given.end(), is_ellipsis);
  if (dots > 1) throw nb::index_error("an index can have one Ellipsis ('...') only");
  const size_t axes = given.size() - static_cast<size_t>(dots);
  if (axes > rank) {
    throw nb::index_error(
        fmt::format("too many indices: the tensor has {} dimensions, and {} were given", rank, axes)
            .c_str());
  }
  if (dots == 0) given.push_back(nb::ellipsis());
  const auto at = std::find_if(given.begin(), given.end(), is_ellipsis);
  const auto position = at - given.begin();
  given.erase(at);
  given.insert(given.begin() + position, rank - axes,
               nb::slice(nb::none(), nb::none(), nb::none()));
  return given;
}

void add_slice(nb::handle index, int64_t extent, Selection& selection) {
  Py_ssize_t start = 0, stop = 0, step = 0;
  if (PySlice_Unpack(index.ptr(), &start, &stop, &step) != 0) throw nb::python_error();
  const int64_t count = PySlice_AdjustIndices(extent, &start, &stop, step);
  const int64_t last = start + (count - 1) * step;
  const int64_t least = count == 0 ? 0 : std::min<int64_t>(start, last);
  selection.box.offset.push_back(least);
  selection.box.size.push_back(count == 0 ? 0 : std::max<int64_t>(start, last) - least + 1);
  selection.steps.push_back(count <= 1 ? 1 : step);
  selection.shape.push_back(count);
}

void add_number(nb::handle index, size_t axis, int64_t extent, Selection& selection) {
  int64_t at = PyNumber_AsSsize_t(index.ptr(), PyExc_IndexError);
  if (at == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
  if (at < -extent || at >= extent) {
    throw nb::index_error(
        fmt::format("index {} is out of range for axis {} of {} elements", at, axis, extent)
            .c_str());
  }
  selection.box.offset.push_back(at < 0 ? at + extent : at);
  selection.box.size.push_back(1);
  selection.steps.push_back(1);
}

// Copies an axis and those in it, element by element.
void take_axis(const std::byte* from, size_t axis, const Array& box, const Dims& counts,
               const Selection& selection, const Dims& strides, std::byte*& into) {
  const auto size = size_bytes(box.dtype);
  if (axis == counts.size()) {
    std::memcpy(into, from, static_cast<size_t>(size));
    into += size;
    return;
  }
  const int64_t step = selection.steps[axis];
  const int64_t first = step > 0 ? 0 : box.shape[axis] - 1;
  for (int64_t i = 0; i < counts[axis]; ++i) {
    take_axis(from + (first + i * step) * strides[axis] * size, axis + 1, box, counts, selection,
              strides, into);
  }
}

}  // namespace

bool Selection::is_box() const noexcept {
  return std::all_of(steps.begin(), steps.end(), [](int64_t step) { return step == 1; });
}

Selection select(nb::handle index, const Dims& shape) {
  Selection selection;
  const std::vector<nb::object> indices = for_each_axis(index, shape.size());
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    nb::object one = indices[axis];
    // safetensors' only index that is a list.
    if (nb::isinstance<nb::list>(one) && nb::len(one) == 0) one = nb::slice(0);
    if (nb::isinstance<nb::slice>(one)) {
      add_slice(one, shape[axis], selection);
    } else if (PyIndex_Check(one.ptr()) && !PyBool_Check(one.ptr())) {
      add_number(one, axis, shape[axis], selection);
    } else {
      throw nb::type_error("an index takes ints, slices and '...'");
    }
  }
  return selection;
}

Array take_steps(const Array& box, const Selection& selection) {
  Array made = new_array(box.dtype, selection.shape);
  if (made.bytes.empty()) return made;
  Dims counts;
  for (size_t axis = 0; axis < box.shape.size(); ++axis) {
    const int64_t step = std::abs(selection.steps[axis]);
    counts.push_back((box.shape[axis] + step - 1) / step);
  }
  std::byte* into = made.bytes.data();
  take_axis(box.bytes.data(), 0, box, counts, selection, row_major_strides(box.shape), into);
  return made;
}

}  // namespace ferry::python
