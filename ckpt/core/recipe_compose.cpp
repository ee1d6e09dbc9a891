#include "ckpt/core/recipe_compose.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

// A move that fills a box of its output, each axis of it by one loop at most, in steps of one.
struct BoxMove {
  Box box;
  Dims in_origin;
  std::vector<std::optional<Loop>> loops;  // by axis of the output
};

// The loop to take apart so that the others may fill a box: one of an axis with several loops, or
// one whose steps leave elements out. -1: none.
int loop_in_the_way(const Move& move) {
  int found = -1;
  for (size_t i = 0; i < move.loops.size(); ++i) {
    const Loop& loop = move.loops[i];
    if (loop.count == 1) continue;
    const bool shared = std::ranges::any_of(move.loops, [&](const Loop& other) {
      return &other != &loop && other.out_axis == loop.out_axis && other.count > 1;
    });
    if (!shared && loop.out_step == 1) continue;
    if (found < 0 || std::abs(loop.out_step) > std::abs(move.loops[found].out_step)) {
      found = static_cast<int>(i);
    }
  }
  return found;
}

void take_apart(const Move& move, std::vector<BoxMove>& boxes) {
  const int at = loop_in_the_way(move);
  if (at < 0) {
    BoxMove whole{{move.out_origin, Dims(move.out_origin.size(), 1)}, move.in_origin, {}};
    whole.loops.resize(move.out_origin.size());
    for (const Loop& loop : move.loops) {
      if (loop.count == 1) continue;
      whole.box.size[loop.out_axis] = loop.count;
      whole.loops[loop.out_axis] = loop;
    }
    boxes.push_back(std::move(whole));
    return;
  }
  const Loop loop = move.loops[at];
  Move part = move;
  part.loops.erase(part.loops.begin() + at);
  for (int64_t i = 0; i < loop.count; ++i) {
    take_apart(part, boxes);
    part.in_origin[loop.in_axis] += loop.in_step;
    part.out_origin[loop.out_axis] += loop.out_step;
  }
}

// `move`, which reads inside the box, reading what fills the box instead.
Move through(const Move& move, const BoxMove& filled) {
  Move result{0, filled.in_origin, move.out_origin, {}};
  for (size_t axis = 0; axis < filled.loops.size(); ++axis) {
    const auto& loop = filled.loops[axis];
    if (!loop) continue;
    result.in_origin[loop->in_axis] +=
        (move.in_origin[axis] - filled.box.offset[axis]) * loop->in_step;
  }
  for (const Loop& loop : move.loops) {
    if (loop.count == 1) continue;
    const auto& inner = filled.loops[loop.in_axis];
    if (!inner) fail(ErrorKind::internal, "a move along an axis of one element");
    result.loops.push_back(
        {loop.count, inner->in_axis, loop.in_step * inner->in_step, loop.out_axis, loop.out_step});
  }
  return result;
}

void check_moves_only(const Recipe& recipe) {
  if (recipe.half == FloatHalf::whole && !recipe.quantise && !recipe.is_scales &&
      recipe.addends.empty()) {
    return;
  }
  fail(ErrorKind::unsupported,
       "tensors that are made of others by more than moves are not made further");
}

}  // namespace

Recipe compose(const Recipe& outer, std::span<const Recipe> made) {
  check_moves_only(outer);
  Recipe result;
  result.zeros = outer.zeros;
  for (uint32_t i = 0; i < outer.inputs.size(); ++i) {
    const Recipe& inner = made[outer.inputs[i]];
    check_moves_only(inner);
    if (!inner.zeros.empty()) fail(ErrorKind::unsupported, "a recipe of zeros is not made further");
    const auto first = static_cast<uint32_t>(result.inputs.size());
    result.inputs.insert(result.inputs.end(), inner.inputs.begin(), inner.inputs.end());
    for (const Move& move : inner.moves) {
      std::vector<BoxMove> boxes;
      take_apart(move, boxes);
      for (const BoxMove& filled : boxes) {
        for (const Move& reading : outer.moves) {
          if (reading.input != i) continue;
          for (const Move& part : clip_input(reading, filled.box)) {
            Move composed = through(part, filled);
            composed.input = first + move.input;
            result.moves.push_back(std::move(composed));
          }
        }
      }
    }
  }
  return result;
}

}  // namespace ferry
