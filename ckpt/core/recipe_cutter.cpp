#include "ckpt/core/recipe_cutter.h"

#include <algorithm>
#include <utility>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

constexpr size_t kFew = 4;  // moves that are looked through without an index

// Position of `coordinates` in the elements of `box`, row-major.
int64_t flat_position(const Dims& coordinates, const Box& box, const Dims& strides) {
  int64_t position = 0;
  for (size_t axis = 0; axis < coordinates.size(); ++axis) {
    position += (coordinates[axis] - box.offset[axis]) * strides[axis];
  }
  return position;
}

Move flatten(Move move, const Box& box, const Dims& strides, int64_t begin) {
  move.out_origin = {begin + flat_position(move.out_origin, box, strides)};
  std::erase_if(move.loops, [](const Loop& loop) { return loop.count == 1; });
  for (Loop& loop : move.loops) {
    loop.out_step *= strides[loop.out_axis];
    loop.out_axis = 0;
  }
  return move;
}

// Runs of consecutive elements that `part` of `box` makes up: one an index of the axes before the
// last one that `part` does not fill.
void flatten(const Box& part, const Box& box, const Dims& strides, int64_t begin,
             std::vector<Box>& runs) {
  size_t axes = part.size.size();
  while (axes > 0 && part.size[axes - 1] == box.size[axes - 1]) --axes;
  int64_t run = 1;
  for (size_t axis = axes > 0 ? axes - 1 : 0; axis < part.size.size(); ++axis) {
    run *= part.size[axis];
  }
  const size_t outer = axes > 0 ? axes - 1 : 0;
  Dims at = part.offset;
  while (true) {
    runs.push_back({{begin + flat_position(at, box, strides)}, {run}});
    size_t axis = outer;
    while (axis > 0 && ++at[axis - 1] == part.offset[axis - 1] + part.size[axis - 1]) {
      --axis;
      at[axis] = part.offset[axis];
    }
    if (axis == 0) return;
  }
}

}  // namespace

RecipeCutter::RecipeCutter(const Recipe& recipe, const Dims& shape) : recipe_(&recipe) {
  if (recipe.zeros.size() > kFew) zeros_ = BoxIndex(recipe.zeros);
  if (recipe.moves.size() <= kFew) return;
  std::vector<Box> boxes;
  boxes.reserve(recipe.moves.size());
  for (const Move& move : recipe.moves) boxes.push_back(output_bounds(move, shape.size()));
  moves_ = BoxIndex(boxes);
}

std::vector<Move> RecipeCutter::moves(const Box& box) const {
  std::vector<Move> all;
  const auto add = [&](const Move& move) {
    for (Move& part : clip_output(move, box)) all.push_back(std::move(part));
  };
  if (recipe_->moves.size() <= kFew) {
    for (const Move& move : recipe_->moves) add(move);
  } else {
    for (const uint32_t i : moves_.overlapping(box)) add(recipe_->moves[i]);
  }
  return all;
}

std::vector<Box> RecipeCutter::zeros(const Box& box) const {
  std::vector<Box> all;
  const auto add = [&](const Box& zeros) {
    Box part = intersection(zeros, box);
    if (std::ranges::find(part.size, 0) == part.size.end()) all.push_back(std::move(part));
  };
  if (recipe_->zeros.size() <= kFew) {
    for (const Box& zeros : recipe_->zeros) add(zeros);
  } else {
    for (const uint32_t i : zeros_.overlapping(box)) add(recipe_->zeros[i]);
  }
  return all;
}

Recipe RecipeCutter::cut(const Shard& shard) const {
  if (shard.is_run()) {
    FlatRecipe flat;
    flat.append(*this, shard);
    return std::move(flat).take();
  }
  const auto shift = [&](Dims& origin) {
    for (size_t axis = 0; axis < origin.size(); ++axis) origin[axis] -= shard.box.offset[axis];
  };
  Recipe part{recipe_->inputs, moves(shard.box), zeros(shard.box), recipe_->half};
  part.addends = recipe_->addends;
  for (Move& move : part.moves) shift(move.out_origin);
  for (Box& box : part.zeros) shift(box.offset);
  return part;
}

size_t FlatRecipe::append(const RecipeCutter& from, const Shard& shard) {
  const size_t before = recipe_.moves.size();
  if (elements_ > 0 && before > 0 && recipe_.half != from.recipe().half) {
    fail(ErrorKind::internal, "one recipe of halves and of whole elements");
  }
  recipe_.half = from.recipe().half;
  const Dims strides = row_major_strides(shard.box.size);
  for (const FilledBox& filled : filled_boxes(shard)) {
    const Box frame{filled.box.offset, shard.box.size};
    const int64_t begin = elements_ + filled.first;
    for (Move& part : from.moves(filled.box)) {
      Move move = flatten(std::move(part), frame, strides, begin);
      move.input = input(from.recipe(), move.input);
      recipe_.moves.push_back(std::move(move));
    }
    for (const Box& part : from.zeros(filled.box)) {
      flatten(part, frame, strides, begin, recipe_.zeros);
    }
  }
  elements_ += shard.elements("part of a tensor");
  return before;
}

void FlatRecipe::append_zeros(int64_t count) {
  if (count <= 0) return;
  recipe_.zeros.push_back({{elements_}, {count}});
  elements_ += count;
}

// Position of an input of another recipe among this one's, with what is added to it.
uint32_t FlatRecipe::input(const Recipe& from, uint32_t input) {
  const uint32_t source = from.inputs.at(input);
  const auto [at, is_new] = inputs_.emplace(source, static_cast<uint32_t>(recipe_.inputs.size()));
  if (!is_new) return at->second;
  recipe_.inputs.push_back(source);
  if (const double value = from.added_to(input); value != 0) {
    recipe_.addends.push_back({at->second, value});
  }
  return at->second;
}

}  // namespace ferry
