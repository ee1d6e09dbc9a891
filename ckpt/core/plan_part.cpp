#include "ckpt/core/plan_part.h"

#include <algorithm>
#include <utility>

#include "ckpt/base/box_index.h"
#include "ckpt/base/error.h"

namespace ferry {
namespace {

constexpr uint32_t kNotWanted = UINT32_MAX;

void shift(Dims& origin, const Dims& by) {
  for (size_t axis = 0; axis < origin.size(); ++axis) origin[axis] -= by[axis];
}

// What of a recipe writes into `box`, in coordinates that count from it.
class RecipeCutter {
 public:
  RecipeCutter(const Recipe& recipe, size_t rank) : recipe_(recipe) {
    std::vector<Box> boxes;
    for (const Move& move : recipe.moves) boxes.push_back(output_bounds(move, rank));
    moves_ = BoxIndex(boxes);
    zeros_ = BoxIndex(recipe.zeros);
  }

  Recipe cut(const Box& box) const {
    Recipe part{recipe_.inputs, {}, {}, recipe_.scales};
    for (const uint32_t i : moves_.overlapping(box)) {
      for (Move& move : clip_output(recipe_.moves[i], box)) {
        shift(move.out_origin, box.offset);
        part.moves.push_back(std::move(move));
      }
    }
    for (const uint32_t i : zeros_.overlapping(box)) {
      Box zeros = common(recipe_.zeros[i], box);
      shift(zeros.offset, box.offset);
      part.zeros.push_back(std::move(zeros));
    }
    return part;
  }

 private:
  // Of two boxes that overlap.
  static Box common(const Box& a, const Box& b) {
    Box both = a;
    for (size_t axis = 0; axis < a.size.size(); ++axis) {
      const int64_t begin = std::max(a.offset[axis], b.offset[axis]);
      const int64_t end = std::min(a.offset[axis] + a.size[axis], b.offset[axis] + b.size[axis]);
      both.offset[axis] = begin;
      both.size[axis] = end - begin;
    }
    return both;
  }

  const Recipe& recipe_;
  BoxIndex moves_, zeros_;
};

}  // namespace

Plan part_of(const Plan& plan, const std::vector<bool>& wanted) {
  Plan own;
  own.source = plan.source;
  std::vector<uint32_t> place(plan.target.files.size(), kNotWanted);
  for (uint32_t file = 0; file < place.size(); ++file) {
    if (!wanted.at(file)) continue;
    place[file] = static_cast<uint32_t>(own.target.files.size());
    own.target.files.push_back(plan.target.files[file]);
  }
  for (size_t i = 0; i < plan.target.entries.size(); ++i) {
    const Entry& entry = plan.target.entries[i];
    const RecipeCutter cutter(plan.recipes[i], entry.shape.size());
    for (const Chunk& chunk : entry.chunks) {
      if (place.at(chunk.extent.file) == kNotWanted) continue;
      if (chunk.is_run()) fail(ErrorKind::unsupported, "tensor {}: a run in a part", entry.name);
      Chunk whole = chunk;
      whole.box = Box::whole(chunk.box.size);
      whole.extent.file = place[chunk.extent.file];
      own.target.entries.push_back(
          {entry.name, entry.dtype, chunk.box.size, {std::move(whole)}, entry.role});
      own.recipes.push_back(cutter.cut(chunk.box));
    }
  }
  for (const Literal& literal : plan.literals) {
    if (place.at(literal.file) == kNotWanted) continue;
    own.literals.push_back({place[literal.file], literal.offset, literal.bytes});
  }
  for (const Item& item : plan.items) {
    if (place.at(item.file) == kNotWanted) continue;
    own.items.push_back(item);
    own.items.back().file = place[item.file];
  }
  return own;
}

}  // namespace ferry
