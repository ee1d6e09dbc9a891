#include "ckpt/core/quantised.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "ckpt/base/cast.h"
#include "ckpt/base/error.h"

namespace ferry {
namespace {

constexpr int64_t kZerosInWord = 8;  // of 4 bits

bool same_but_for_units(Dims a, Dims b) {
  std::erase(a, 1);
  std::erase(b, 1);
  return a == b;
}

[[noreturn]] void refuse(const Entry& entry, const Entry& part, std::string_view what,
                         const Dims& expected) {
  fail(ErrorKind::mismatch, "tensor {} of shape {}: its {} {} ({} of {}) should be of {}",
       entry.name, to_string(entry.shape), what, part.name, torch_name(part.dtype),
       to_string(part.shape), to_string(expected));
}

void check_codes(const Entry& entry, const Quantised& form, const Dims& shape) {
  Dims expected = shape;
  expected.back() = blocks_in(shape.back(), form.codes_per_element());
  if (form.codes.shape != expected) refuse(entry, form.codes, "codes", expected);
  const bool is_code =
      form.code != Code::element || form.codes.dtype == DType::i8 ||
      (size_bytes(form.codes.dtype) == 1 && can_convert(form.codes.dtype, DType::f32));
  if (is_code && can_convert(entry.dtype, DType::f32)) return;
  fail(ErrorKind::mismatch, "tensor {}: {} of {} are not codes of a quantised tensor", entry.name,
       form.codes.name, torch_name(form.codes.dtype));
}

void check_scales(const Entry& entry, const Quantised& form, const Dims& grid) {
  const DType dtype = form.scales.dtype;
  if (!are_exponents(dtype) && !can_convert(dtype, DType::f32)) {
    fail(ErrorKind::mismatch, "tensor {}: its scales {} are of {}, which is not a type of scales",
         entry.name, form.scales.name, torch_name(dtype));
  }
  if (same_but_for_units(form.scales.shape, grid)) return;
  fail(ErrorKind::mismatch,
       "tensor {} of shape {}: its scales {} have shape {}, which does not fit blocks of {}",
       entry.name, to_string(entry.shape), form.scales.name, to_string(form.scales.shape),
       to_string(form.block));
}

void check_zeros(const Entry& entry, const Quantised& form, Dims grid) {
  const Entry& zeros = *form.zeros;
  if (zeros.dtype == DType::i8) {
    if (!same_but_for_units(zeros.shape, grid)) refuse(entry, zeros, "zero points", grid);
    return;
  }
  if (grid.size() >= 2) grid[grid.size() - 2] = blocks_in(grid[grid.size() - 2], kZerosInWord);
  const bool fits = grid.size() >= 2 && form.code == Code::u4 && zeros.dtype == DType::i32;
  if (!fits || zeros.shape != grid) refuse(entry, zeros, "zero points", grid);
}

}  // namespace

bool are_exponents(DType scales) noexcept {
  return scales == DType::u8 || scales == DType::f8_e8m0;
}

int64_t codes_per_byte(Code code) noexcept {
  return code == Code::e2m1 || code == Code::u4 ? 2 : 1;
}

int64_t Quantised::codes_per_element() const noexcept {
  return codes_per_byte(code) * size_bytes(codes.dtype);
}

Dims Quantised::in_codes(Dims dims) const {
  if (transposed) std::swap(dims.at(dims.size() - 2), dims.at(dims.size() - 1));
  return dims;
}

Dims block_grid(const Dims& shape, const Dims& block) {
  Dims grid;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    grid.push_back(blocks_in(shape[axis], block[axis]));
  }
  return grid;
}

Box blocks_of(const Box& box, const Dims& block) {
  Box blocks = box;
  for (size_t axis = 0; axis < block.size(); ++axis) {
    if (blocks.size[axis] == 0) continue;
    const int64_t last = box.offset[axis] + box.size[axis] - 1;
    blocks.offset[axis] /= block[axis];
    blocks.size[axis] = last / block[axis] - blocks.offset[axis] + 1;
  }
  return blocks;
}

Box in_shape(const Dims& shape, const Box& box, const Dims& grid) {
  Box result{Dims(shape.size(), 0), Dims(shape.size(), 1)};
  size_t from = 0;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] == 1) continue;
    while (from < grid.size() && grid[from] == 1) ++from;
    result.offset[axis] = box.offset.at(from);
    result.size[axis] = box.size.at(from);
    ++from;
  }
  return result;
}

void check_quantised(const Entry& entry) {
  const Quantised& form = *entry.quantised;
  const size_t rank = entry.shape.size();
  const bool is_block = form.block.size() == rank &&
                        std::ranges::all_of(form.block, [](int64_t size) { return size > 0; });
  if (rank < (form.transposed ? 2U : 1U) || !is_block || !entry.chunks.empty()) {
    fail(ErrorKind::mismatch, "tensor {} of shape {} cannot be quantised in blocks of {}",
         entry.name, to_string(entry.shape), to_string(form.block));
  }
  element_count(entry.shape, entry.name);  // no overflow
  const Dims shape = form.in_codes(entry.shape);
  const Dims grid = block_grid(shape, form.block);
  check_codes(entry, form, shape);
  check_scales(entry, form, grid);
  if (form.zeros) check_zeros(entry, form, grid);
  if (!form.global) return;
  const Dims& global = form.global->shape;
  const bool is_one = form.global->elements() == 1;
  const bool leads =
      global.size() < rank && std::equal(global.begin(), global.end(), shape.begin());
  if (can_convert(form.global->dtype, DType::f32) && (is_one || leads)) return;
  refuse(entry, *form.global, "second scale", {});
}

}  // namespace ferry
