#include "ckpt/core/recipe.h"

#include <algorithm>
#include <utility>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

// Which side of a move an operation works on.
enum class Side { in, out };

int axis_of(const Loop& loop, Side side) { return side == Side::in ? loop.in_axis : loop.out_axis; }
int64_t step_of(const Loop& loop, Side side) {
  return side == Side::in ? loop.in_step : loop.out_step;
}
const Dims& origin_of(const Move& move, Side side) {
  return side == Side::in ? move.in_origin : move.out_origin;
}

// Narrows one loop to `count` iterations from `begin`.
void narrow(Move& move, size_t loop_index, int64_t begin, int64_t count) {
  Loop& loop = move.loops[loop_index];
  move.in_origin[loop.in_axis] += begin * loop.in_step;
  move.out_origin[loop.out_axis] += begin * loop.out_step;
  loop.count = count;
}

// The loops that walk one axis form a mixed-radix number: the outermost has the largest step and
// the inner ones stay inside it. An interval of the axis is then a few boxes of loop ranges.
class AxisClipper {
 public:
  AxisClipper(const Move& move, Side side, int axis) {
    for (size_t i = 0; i < move.loops.size(); ++i) {
      if (axis_of(move.loops[i], side) == axis) loops_.push_back(i);
    }
    std::sort(loops_.begin(), loops_.end(), [&](size_t a, size_t b) {
      return step_of(move.loops[a], side) > step_of(move.loops[b], side);
    });
    steps_.resize(loops_.size());
    extents_.assign(loops_.size() + 1, 1);
    for (size_t level = loops_.size(); level-- > 0;) {
      const Loop& loop = move.loops[loops_[level]];
      steps_[level] = step_of(loop, side);
      if (steps_[level] < extents_[level + 1]) {
        fail(ErrorKind::internal, "a move's loops overlap: step {} walks over {} elements",
             steps_[level], extents_[level + 1]);
      }
      extents_[level] = (loop.count - 1) * steps_[level] + extents_[level + 1];
    }
  }

  // Appends the parts of `move` whose coordinate, relative to the origin, is in [low, high).
  void clip(Move move, size_t level, int64_t low, int64_t high, std::vector<Move>& out) const {
    if (high <= 0 || low >= extents_[level] || low >= high) return;
    if (low <= 0 && high >= extents_[level]) {
      out.push_back(std::move(move));
      return;
    }
    // Not reached at the last level: an extent of 1 is inside or outside.
    const int64_t step = steps_[level];
    const int64_t inner = extents_[level + 1];
    const int64_t count = move.loops[loops_[level]].count;
    const int64_t first_full = low <= 0 ? 0 : (low + step - 1) / step;
    const int64_t end_full = high < inner ? 0 : std::min(count, (high - inner) / step + 1);
    const auto one = [&](int64_t index) {
      Move part = move;
      narrow(part, loops_[level], index, 1);
      clip(std::move(part), level + 1, low - index * step, high - index * step, out);
    };
    // The iteration that `low` cuts, then the whole ones, then the one that `high` cuts.
    const int64_t low_cut = low > 0 && low / step < first_full ? low / step : -1;
    if (low_cut >= 0 && low_cut < count) one(low_cut);
    if (first_full < end_full) {
      Move part = move;
      narrow(part, loops_[level], first_full, end_full - first_full);
      out.push_back(std::move(part));
    }
    const int64_t high_cut = (high - 1) / step;
    if (high_cut >= std::max(first_full, end_full) && high_cut != low_cut && high_cut < count) {
      one(high_cut);
    }
  }

 private:
  std::vector<size_t> loops_;  // of the move, largest step first
  std::vector<int64_t> steps_;
  std::vector<int64_t> extents_;  // coordinates that the loops from this level on span
};

std::vector<Move> clip_side(const Move& move, const Box& box, Side side) {
  std::vector<Move> parts{move};
  for (const Loop& loop : move.loops) {
    if (loop.count <= 0) return {};
  }
  for (size_t axis = 0; axis < box.size.size(); ++axis) {
    std::vector<Move> next;
    for (Move& part : parts) {
      const AxisClipper clipper(part, side, static_cast<int>(axis));
      const int64_t low = box.offset[axis] - origin_of(part, side)[axis];
      clipper.clip(std::move(part), 0, low, low + box.size[axis], next);
    }
    parts = std::move(next);
  }
  return parts;
}

Box bounds(const Move& move, Side side, size_t rank) {
  Box box{origin_of(move, side), Dims(rank, 1)};
  for (const Loop& loop : move.loops) {
    if (loop.count <= 0) return {box.offset, Dims(rank, 0)};
    box.size[axis_of(loop, side)] += (loop.count - 1) * step_of(loop, side);
  }
  return box;
}

}  // namespace

int64_t Move::elements() const {
  int64_t count = 1;
  for (const Loop& loop : loops) count *= loop.count;
  return count;
}

Move Move::inverse() const {
  Move result = *this;
  std::swap(result.in_origin, result.out_origin);
  for (Loop& loop : result.loops) {
    std::swap(loop.in_axis, loop.out_axis);
    std::swap(loop.in_step, loop.out_step);
  }
  return result;
}

double Recipe::added_to(uint32_t input) const noexcept {
  for (const Addend& each : addends) {
    if (each.input == input) return each.value;
  }
  return 0;
}

Move copy_all(const Dims& shape) { return copy_box(Box::whole(shape), Dims(shape.size(), 0)); }

Move copy_box(const Box& in_box, const Dims& out_offset) {
  Move move{0, in_box.offset, out_offset, {}};
  for (size_t axis = 0; axis < in_box.size.size(); ++axis) {
    const int a = static_cast<int>(axis);
    move.loops.push_back({in_box.size[axis], a, 1, a, 1});
  }
  return move;
}

std::vector<Move> clip_output(const Move& move, const Box& box) {
  return clip_side(move, box, Side::out);
}
std::vector<Move> clip_input(const Move& move, const Box& box) {
  return clip_side(move, box, Side::in);
}
Box output_bounds(const Move& move, size_t rank) { return bounds(move, Side::out, rank); }
Box input_bounds(const Move& move, size_t rank) { return bounds(move, Side::in, rank); }

}  // namespace ferry
