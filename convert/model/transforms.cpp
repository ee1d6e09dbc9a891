#include "convert/model/transforms.h"

#include <algorithm>
#include <array>
#include <string_view>
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

// `blocks` blocks of `rows` rows on both sides: the first of each, and how far they are apart.
struct RowBlocks {
  int64_t first = 0, step = 0;
};
Move spread_rows(const Dims& shape, RowBlocks in, RowBlocks out, int64_t blocks, int64_t rows) {
  Move move;
  move.in_origin = at_row(shape, in.first);
  move.out_origin = at_row(shape, out.first);
  move.loops = {{blocks, 0, in.step, 0, out.step}, {rows, 0, 1, 0, 1}};
  add_rest(move.loops, shape, 1);
  return move;
}

// `blocks` blocks of `rows` rows, the first at `first_row`, `in_step` apart, to consecutive rows
// from `out_row` on.
Move move_rows(const Dims& shape, int64_t first_row, int64_t blocks, int64_t in_step, int64_t rows,
               int64_t out_row = 0) {
  return spread_rows(shape, {first_row, in_step}, {out_row, rows}, blocks, rows);
}

Part gather_rows(const Dims& shape, int64_t first_row, int64_t blocks, int64_t in_step,
                 int64_t rows) {
  return {with_rows(shape, blocks * rows), {move_rows(shape, first_row, blocks, in_step, rows)}};
}

// Query groups hold queries of their heads, gates of their heads, a key and a value.
std::vector<Part> split_gated_qkv(const Dims& shape, const Architecture& a) {
  const int64_t head = a.head_dim, heads = a.heads / a.groups;
  const int64_t group_rows = (2 * heads + 2) * head;
  Part queries{with_rows(shape, 2 * a.heads * head), {}};
  for (int64_t gate = 0; gate < 2; ++gate) {
    Move move;
    move.in_origin = at_row(shape, gate * heads * head);
    move.out_origin = at_row(shape, gate * head);
    move.loops = {{a.groups, 0, group_rows, 0, 2 * heads * head},
                  {heads, 0, head, 0, 2 * head},
                  {head, 0, 1, 0, 1}};
    add_rest(move.loops, shape, 1);
    queries.moves.push_back(std::move(move));
  }
  return {std::move(queries), gather_rows(shape, 2 * heads * head, a.groups, group_rows, head),
          gather_rows(shape, (2 * heads + 1) * head, a.groups, group_rows, head)};
}

// Rows of each piece of a gated delta net's input, of all key heads.
struct DeltaNetRows {
  explicit DeltaNetRows(const Architecture& a)
      : heads(a.linear_key_heads),
        keys(a.linear_key_heads * a.linear_key_dim),
        values(a.linear_value_heads * a.linear_value_dim),
        scalars(a.linear_value_heads) {}

  int64_t heads, keys, values, scalars;
};

std::vector<Part> split_delta_net(const Dims& shape, const Architecture& a) {
  const DeltaNetRows rows(a);
  std::vector<Part> parts;
  int64_t begin = 0;
  for (const int64_t count :
       {2 * rows.keys + rows.values, rows.values, rows.scalars, rows.scalars}) {
    parts.push_back(gather_rows(shape, begin, 1, count, count));
    begin += count;
  }
  return parts;
}

std::vector<Part> split_delta_net_by_head(const Dims& shape, const Architecture& a) {
  const DeltaNetRows rows(a);
  std::vector<Part> parts;
  int64_t begin = 0;
  for (const Dims& pieces :
       {Dims{rows.keys, rows.keys, rows.values, rows.values}, Dims{rows.scalars, rows.scalars}}) {
    int64_t all = 0, at = 0;
    for (const int64_t piece : pieces) all += piece;
    Part part{with_rows(shape, all), {}};
    for (const int64_t piece : pieces) {
      const int64_t of_head = piece / rows.heads;
      part.moves.push_back(
          spread_rows(shape, {begin, of_head}, {at, all / rows.heads}, rows.heads, of_head));
      begin += piece;
      at += of_head;
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

std::vector<Part> split_qkv(const Dims& shape, const Architecture& a) {
  if (a.output_gate) return split_gated_qkv(shape, a);
  const int64_t head = a.head_dim;
  const int64_t query_rows = a.heads / a.groups * head;
  const int64_t group_rows = query_rows + 2 * head;
  return {gather_rows(shape, 0, a.groups, group_rows, query_rows),
          gather_rows(shape, query_rows, a.groups, group_rows, head),
          gather_rows(shape, query_rows + head, a.groups, group_rows, head)};
}

// How a tensor holds gate and up: in halves, or in blocks in turn on each of some ranks.
struct Alternation {
  int64_t block = 0, ranks = 1;
};

Alternation alternation_of(std::string_view name, const Architecture& a) {
  if (name.find(".shared_experts.") != std::string_view::npos) {
    return {a.shared_glu_block, a.glu_ranks};
  }
  if (name.find(".experts.") != std::string_view::npos) {
    return {a.expert_glu_block, a.expert_glu_ranks};
  }
  return {a.dense_glu_block, a.glu_ranks};
}

// Every other block of each rank's rows, from the first or the second on. Megatron-LM saves the
// first halves of all ranks' rows, then the second ones, taking them for gate and up.
Part gather_blocks(const Dims& shape, const Alternation& how, int64_t first) {
  const int64_t half = shape[0] / 2, rows = half / how.ranks, blocks = rows / how.block;
  const int64_t in_first_half = first == 0 ? (blocks + 1) / 2 : blocks / 2;
  const int64_t in_second_half = blocks - in_first_half;
  const int64_t step = 2 * how.block;
  Part part{with_rows(shape, half), {}};
  for (int64_t rank = 0; rank < how.ranks; ++rank) {
    const int64_t to = rank * rows;
    if (in_first_half > 0) {
      part.moves.push_back(move_rows(shape, to + first, in_first_half, step, how.block, to));
    }
    if (in_second_half > 0) {
      const int64_t from = half + to + first + in_first_half * step - rows;
      part.moves.push_back(
          move_rows(shape, from, in_second_half, step, how.block, to + in_first_half * how.block));
    }
  }
  return part;
}

std::vector<Part> split_gate_up(const Link& link, const Architecture& a) {
  const int64_t half = link.shape[0] / 2;
  const Alternation how = alternation_of(link.megatron, a);
  if (how.block == 0) {
    return {gather_rows(link.shape, 0, 1, half, half),
            gather_rows(link.shape, half, 1, half, half)};
  }
  if (how.block < 0 || how.ranks < 1 || half % how.ranks != 0 ||
      half / how.ranks % how.block != 0) {
    fail(ErrorKind::mismatch,
         "tensor {}: {} rows on {} ranks do not divide into blocks of {} gate and up rows",
         link.megatron, link.shape[0], how.ranks, how.block);
  }
  return {gather_blocks(link.shape, how, 0), gather_blocks(link.shape, how, how.block)};
}

// Parts of the same width one after another along the first axis.
std::vector<Part> joined(std::vector<Part> parts) {
  Part all = std::move(parts.front());
  for (size_t i = 1; i < parts.size(); ++i) {
    for (Move& move : parts[i].moves) {
      move.out_origin[0] += all.shape[0];
      all.moves.push_back(std::move(move));
    }
    all.shape[0] += parts[i].shape[0];
  }
  return {std::move(all)};
}

// Rows of gate and up to columns: `step` apart, the first of gate and of up at these columns. Of a
// bias: elements.
Part columns_of(std::vector<Part> parts, int64_t step, const std::array<int64_t, 2>& first) {
  const Dims& half = parts.front().shape;
  const bool bias = half.size() == 1;
  Part all{bias ? Dims{2 * half[0]} : Dims{half[1], 2 * half[0]}, {}};
  const int columns = bias ? 0 : 1;
  for (size_t i = 0; i < parts.size(); ++i) {
    for (Move& move : parts[i].moves) {
      Dims origin(half.size(), 0);
      origin[static_cast<size_t>(columns)] = first[i] + step * move.out_origin[0];
      move.out_origin = std::move(origin);
      for (Loop& loop : move.loops) {
        const bool is_row = loop.out_axis == 0;
        if (is_row) loop.out_step *= step;
        loop.out_axis = is_row ? columns : 0;
      }
      all.moves.push_back(std::move(move));
    }
  }
  return all;
}

Part swap_halves(const Dims& shape) {
  const int64_t half = shape[1] / 2;
  const Box first{{0, 0}, {shape[0], half}}, second{{0, half}, {shape[0], shape[1] - half}};
  return {shape, {copy_box(second, {0, 0}), copy_box(first, {0, shape[1] - half})}};
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

namespace {

std::vector<Part> parts_of_one(const Link& link, const Architecture& a) {
  switch (link.rule->transform) {
    case Transform::copy:
      return {{link.shape, {copy_all(link.shape)}}};
    case Transform::vocabulary: {
      const Dims kept = with_rows(link.shape, a.vocab);
      return {{kept, {copy_box(Box::whole(kept), Dims(kept.size(), 0))}}};
    }
    case Transform::qkv:
      return split_qkv(link.shape, a);
    case Transform::queries:
      return {split_qkv(link.shape, a).front()};
    case Transform::unused:
      return {};
    case Transform::gate_up:
      return split_gate_up(link, a);
    case Transform::swap_halves:
      return {swap_halves(link.shape)};
    case Transform::gate_up_transpose:
      return {columns_of(split_gate_up(link, a), 1, {0, link.shape[0] / 2})};
    case Transform::gate_up_columns:
      return {columns_of(split_gate_up(link, a), 2, {0, 1})};
    case Transform::transpose:
      return {transpose(link.shape)};
    case Transform::qkv_transpose:
      return {concatenate_qkv(link.shape, a)};
    case Transform::delta_net:
      return split_delta_net(link.shape, a);
    case Transform::delta_net_by_head:
      return split_delta_net_by_head(link.shape, a);
    case Transform::single:
      return {single(link.shape)};
    case Transform::constant:
      return {{link.shape, {}}};
  }
  fail(ErrorKind::internal, "tensor {}: unknown transform", link.megatron);
}

// The same in the tensor of all experts.
void put_among_experts(Part& part, int64_t expert, int64_t experts) {
  part.shape.insert(part.shape.begin(), experts);
  for (Move& move : part.moves) {
    move.out_origin.insert(move.out_origin.begin(), expert);
    for (Loop& loop : move.loops) ++loop.out_axis;
  }
}

}  // namespace

bool has_transposed_experts(const Link& link) {
  const Transform transform = link.rule->transform;
  return link.expert >= 0 && link.shape.size() == 2 &&
         (transform == Transform::transpose || transform == Transform::gate_up_transpose ||
          transform == Transform::gate_up_columns);
}

Part with_matrices_exchanged(Part part) {
  std::swap(part.shape[1], part.shape[2]);
  for (Move& move : part.moves) {
    std::swap(move.out_origin[1], move.out_origin[2]);
    for (Loop& loop : move.loops) {
      if (loop.out_axis > 0) loop.out_axis = 3 - loop.out_axis;
    }
  }
  return part;
}

bool is_repeated(const Link& link, size_t part) {
  if (part >= link.hugging_face.size()) return false;
  const auto begin = link.hugging_face.begin(), end = begin + static_cast<std::ptrdiff_t>(part);
  return std::find(begin, end, *end) != end;
}

std::vector<Box> left_at_zero(const Link& link, const Architecture& architecture) {
  const Box whole = Box::whole(link.shape);
  if (link.rule->transform == Transform::unused) return {whole};
  if (link.rule->transform != Transform::queries) return {};
  const Architecture a = architecture.in_layer(link.layer);
  const int64_t queries = a.heads / a.groups * a.head_dim, rows = 2 * a.head_dim;
  std::vector<Box> boxes(static_cast<size_t>(a.groups), whole);
  for (size_t group = 0; group < boxes.size(); ++group) {
    boxes[group].offset[0] = static_cast<int64_t>(group) * (queries + rows) + queries;
    boxes[group].size[0] = rows;
  }
  return boxes;
}

std::vector<Part> parts_of(const Link& link, const Architecture& a) {
  std::vector<Part> parts =
      a.differs_by_layer() ? parts_of_one(link, a.in_layer(link.layer)) : parts_of_one(link, a);
  if (link.hugging_face.size() == 1 && parts.size() > 1) parts = joined(std::move(parts));
  if (link.expert >= 0) {
    for (Part& part : parts) put_among_experts(part, link.expert, a.experts);
  }
  return parts;
}

}  // namespace ferry
