#include "convert/model/transforms.h"

#include <utility>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

// Appends loops that walk all axes from `first` on, which both sides have in common.
void add_rest(std::vector<Loop>& loops, const Dims& shape, size_t first) {
  for (size_t axis = first; axis < shape.size(); ++axis) {
    loops.push_back({shape[axis], static_cast<int>(axis), 1, static_cast<int>(axis), 1});
  }
}

Dims with_rows(Dims shape, int64_t rows) {
  shape[0] = rows;
  return shape;
}

Dims at_row(const Dims& shape, int64_t row) {
  Dims origin(shape.size(), 0);
  origin[0] = row;
  return origin;
}

// `blocks` blocks of `rows` rows, the first at `first_row`, `in_step` apart, to consecutive rows.
Part gather_rows(const Dims& shape, int64_t first_row, int64_t blocks, int64_t in_step,
                 int64_t rows) {
  Move move;
  move.in_origin = at_row(shape, first_row);
  move.out_origin = Dims(shape.size(), 0);
  move.loops = {{blocks, 0, in_step, 0, rows}, {rows, 0, 1, 0, 1}};
  add_rest(move.loops, shape, 1);
  return {with_rows(shape, blocks * rows), {std::move(move)}};
}

std::vector<Part> split_qkv(const Dims& shape, const Architecture& a) {
  const int64_t head = a.head_dim;
  const int64_t query_rows = a.heads / a.groups * head;
  const int64_t group_rows = query_rows + 2 * head;
  return {gather_rows(shape, 0, a.groups, group_rows, query_rows),
          gather_rows(shape, query_rows, a.groups, group_rows, head),
          gather_rows(shape, query_rows + head, a.groups, group_rows, head)};
}

std::vector<Part> split_gate_up(const Link& link, const Architecture& a) {
  const int64_t half = link.shape[0] / 2;
  int64_t block = 0;
  if (link.megatron.find(".shared_experts.") != std::string::npos) {
    block = a.shared_glu_block;
  } else if (link.megatron.find(".experts.") != std::string::npos) {
    block = a.expert_glu_block;
  }
  if (block == 0) block = half;
  if (block < 0 || half % block != 0) {
    fail(ErrorKind::mismatch, "tensor {}: {} rows do not divide into blocks of {} gate and up rows",
         link.megatron, link.shape[0], block);
  }
  return {gather_rows(link.shape, 0, half / block, 2 * block, block),
          gather_rows(link.shape, block, half / block, 2 * block, block)};
}

Part transpose(const Dims& shape) {
  Move move;
  move.in_origin = move.out_origin = {0, 0};
  move.loops = {{shape[0], 0, 1, 1, 1}, {shape[1], 1, 1, 0, 1}};
  return {{shape[1], shape[0]}, {std::move(move)}};
}

// Rows by head [q, k, v] to columns [all q; all k; all v] (of a bias: elements).
Part concatenate_qkv(const Dims& shape, const Architecture& a) {
  const bool bias = shape.size() == 1;
  const int out_axis = bias ? 0 : 1;
  const int64_t head = a.head_dim;
  Part part;
  part.shape = bias ? shape : Dims{shape[1], shape[0]};
  for (int64_t which = 0; which < 3; ++which) {
    Move move;
    move.in_origin = at_row(shape, which * head);
    move.out_origin = Dims(shape.size(), 0);
    move.out_origin[static_cast<size_t>(out_axis)] = which * a.heads * head;
    move.loops = {{a.heads, 0, 3 * head, out_axis, head}, {head, 0, 1, out_axis, 1}};
    if (!bias) move.loops.push_back({shape[1], 1, 1, 0, 1});
    part.moves.push_back(std::move(move));
  }
  return part;
}

Part single(const Dims& shape) {
  Move move;
  move.in_origin = Dims(shape.size(), 0);
  move.out_origin = {0};
  return {{1}, {std::move(move)}};
}

}  // namespace

std::vector<Part> parts_of(const Link& link, const Architecture& a) {
  switch (link.rule->transform) {
    case Transform::copy:
      return {{link.shape, {copy_all(link.shape)}}};
    case Transform::vocabulary: {
      const Dims kept = with_rows(link.shape, a.vocab);
      return {{kept, {copy_box(Box::whole(kept), Dims(kept.size(), 0))}}};
    }
    case Transform::qkv:
      return split_qkv(link.shape, a);
    case Transform::gate_up:
      return split_gate_up(link, a);
    case Transform::transpose:
      return {transpose(link.shape)};
    case Transform::qkv_transpose:
      return {concatenate_qkv(link.shape, a)};
    case Transform::single:
      return {single(link.shape)};
    case Transform::constant:
      return {{link.shape, {}}};
  }
  fail(ErrorKind::internal, "tensor {}: unknown transform", link.megatron);
}

}  // namespace ferry
