// How one output tensor is made from input tensors: index arithmetic, nothing else.
//
// A Move is a nest of loops over elements. Each loop walks one axis of the input by a step and one
// axis of the output by a step, so slices, concatenation, stacking, QKV interleaving, gate/up
// splits, transposition, padding and trimming are all moves. A move has an inverse: exchange
// input and output. Two loops may walk the same axis (query groups, then rows inside a group); the
// inner one then stays inside the outer one's step.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ckpt/base/box.h"
#include "ckpt/base/dtype.h"

namespace ferry {

struct Loop {
  int64_t count = 1;
  int in_axis = 0;
  int64_t in_step = 1;  // elements along in_axis
  int out_axis = 0;
  int64_t out_step = 1;
};

struct Move {
  uint32_t input = 0;  // index into the recipe's inputs
  Dims in_origin;      // global coordinates of the first element
  Dims out_origin;
  std::vector<Loop> loops;  // outermost first

  int64_t elements() const;
  Move inverse() const;  // input index is kept
};

/// How codes and scales are made of values (ckpt/engine/quantise/encode.h).
enum class QuantiseRule : uint8_t {
  fp8,
  fp8_exponents,  // scales are powers of two
  fp8_tensor,     // one scale in all
  mxfp8,
  mxfp4,
  mxfp4_up,
  nvfp4,
  nvfp4_divided,
  int4,
  int4_zeros,
};

/// An output that is quantised as it is written: the recipe makes values of two axes, the entry
/// holds their codes, and other entries of the target, whose recipes are empty but for `is_scales`,
/// hold the rest.
struct Quantise {
  QuantiseRule rule = QuantiseRule::fp8;
  Dims shape;                   // of the values
  Dims block;                   // extents of what has one scale; the last may be cut
  std::vector<uint32_t> parts;  // positions in the target, in the order of parts_of()
  DType values = DType::f32;    // what the elements are rounded to first: bf16, fp16 or fp32
  uint32_t together = 0;        // weights with the same number have one second scale
};

/// A number that is added to all elements of an input, in double precision, before they are rounded
/// to the output's dtype: norms that one side stores less 1.
struct Addend {
  uint32_t input = 0;  // index into the recipe's inputs
  double value = 0;
};

/// Values are converted between dtypes element by element, as convert() (ckpt/base/cast.h) does.
struct Recipe {
  std::vector<uint32_t> inputs;       // positions in the source catalog's entries
  std::vector<Move> moves;            // together with `zeros` they write every output element once
  std::vector<Box> zeros;             // parts of the output that are filled with zero
  FloatHalf half = FloatHalf::whole;  // of every input; zeros have zeros for halves
  std::optional<Quantise> quantise = {};
  bool is_scales = false;            // another entry's recipe writes this one
  std::vector<Addend> addends = {};  // at most one an input

  double added_to(uint32_t input) const noexcept;  // 0: nothing is
};

/// The identity: all of a tensor.
Move copy_all(const Dims& shape);

/// `in_box` of the input to `out_offset` of the output, which has the input's rank.
Move copy_box(const Box& in_box, const Dims& out_offset);

/// Part of a move: the elements whose output (or input) coordinates are inside `box`. Loops that
/// share an axis make the part a union of a few moves.
std::vector<Move> clip_output(const Move& move, const Box& box);
std::vector<Move> clip_input(const Move& move, const Box& box);

/// Smallest box that holds all the output (input) coordinates of a move.
Box output_bounds(const Move& move, size_t rank);
Box input_bounds(const Move& move, size_t rank);

}  // namespace ferry
