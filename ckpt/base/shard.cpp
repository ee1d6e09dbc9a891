#include <fmt/format.h>

#include <algorithm>

#include "ckpt/base/box.h"
#include "ckpt/base/box_index.h"

namespace ferry {
namespace {

// Cuts the run [begin, end) of the flattened box [axis, rank) into boxes: the rest of a first row,
// whole rows, the start of a last row; and the same again inside the two partial rows.
class RunCutter {
 public:
  explicit RunCutter(const Shard& run) : run_(run), strides_(row_major_strides(run.box.size)) {}

  std::vector<FilledBox> cut() {
    box_ = {run_.box.offset, Dims(run_.box.size.size(), 1)};
    if (run_.run_count > 0) cut_axis(0, run_.run_begin, run_.run_begin + run_.run_count, 0);
    return std::move(boxes_);
  }

 private:
  void cut_axis(size_t axis, int64_t begin, int64_t end, int64_t before) {
    if (axis == strides_.size()) return emit(axis, before);
    const int64_t inner = strides_[axis];
    if (begin == 0 && end == inner * run_.box.size[axis]) return emit(axis, before);
    int64_t row = begin / inner;
    if (begin % inner != 0) {
      const int64_t row_end = std::min(end, (row + 1) * inner);
      cut_row(axis, row, begin - row * inner, row_end - row * inner, before);
      ++row;
    }
    const int64_t last = end / inner;
    if (row < last) {
      box_.offset[axis] = run_.box.offset[axis] + row;
      box_.size[axis] = last - row;
      emit(axis + 1, before + row * inner);
      box_.size[axis] = 1;
    }
    if (last >= row && end % inner != 0) cut_row(axis, last, 0, end - last * inner, before);
  }

  void cut_row(size_t axis, int64_t row, int64_t begin, int64_t end, int64_t before) {
    box_.offset[axis] = run_.box.offset[axis] + row;
    box_.size[axis] = 1;
    cut_axis(axis + 1, begin, end, before + row * strides_[axis]);
  }

  // Axes from `axis` on are whole; `before` counts the elements of the shard's box ahead of this.
  void emit(size_t axis, int64_t before) {
    FilledBox filled{box_, before - run_.run_begin};
    for (size_t a = axis; a < strides_.size(); ++a) {
      filled.box.offset[a] = run_.box.offset[a];
      filled.box.size[a] = run_.box.size[a];
    }
    boxes_.push_back(std::move(filled));
  }

  const Shard& run_;
  Dims strides_;  // elements, row-major
  Box box_;
  std::vector<FilledBox> boxes_;
};

bool has_elements(const Box& box) {
  return std::find(box.size.begin(), box.size.end(), 0) == box.size.end();
}

// The first two boxes with a common element of which `overlap` is true.
template <typename Overlap>
std::optional<std::pair<size_t, size_t>> find_pair(const std::vector<Box>& boxes,
                                                   const Overlap& overlap) {
  if (boxes.size() < 2) return std::nullopt;
  const BoxIndex index(boxes);
  for (size_t i = 0; i < boxes.size(); ++i) {
    if (!has_elements(boxes[i])) continue;
    for (const uint32_t j : index.overlapping(boxes[i])) {
      if (j > i && overlap(i, j)) return std::pair(i, size_t{j});
    }
  }
  return std::nullopt;
}

}  // namespace

int64_t Shard::elements(std::string_view what) const {
  return is_run() ? run_count : element_count(box.size, what);
}

std::string to_string(const Shard& shard) {
  if (!shard.is_run()) return to_string(shard.box);
  return fmt::format("elements {} to {} of {}", shard.run_begin, shard.run_begin + shard.run_count,
                     to_string(shard.box));
}

bool is_inside(const Shard& shard, const Dims& shape) {
  if (!is_inside(shard.box, shape)) return false;
  if (!shard.is_run()) return true;
  const int64_t in_box = element_count(shard.box.size, "part of a tensor");
  return shard.run_begin >= 0 && shard.run_begin <= in_box &&
         shard.run_count <= in_box - shard.run_begin;
}

bool overlaps(const Shard& a, const Shard& b) {
  if (!overlaps(a.box, b.box)) return false;
  if (!a.is_run() && !b.is_run()) return true;
  if (a.box == b.box && a.is_run() && b.is_run()) {
    return std::max(a.run_begin, b.run_begin) <
           std::min(a.run_begin + a.run_count, b.run_begin + b.run_count);
  }
  for (const FilledBox& x : filled_boxes(a)) {
    for (const FilledBox& y : filled_boxes(b)) {
      if (overlaps(x.box, y.box)) return true;
    }
  }
  return false;
}

std::vector<FilledBox> filled_boxes(const Shard& shard) {
  if (shard.is_run()) return RunCutter(shard).cut();
  return {{shard.box, 0}};
}

std::optional<std::pair<size_t, size_t>> find_overlap(std::span<const Shard* const> shards) {
  std::vector<Box> boxes;
  boxes.reserve(shards.size());
  for (const Shard* shard : shards) boxes.push_back(shard->box);
  return find_pair(boxes, [&](size_t a, size_t b) { return overlaps(*shards[a], *shards[b]); });
}

std::optional<std::pair<size_t, size_t>> find_overlap(const std::vector<Box>& boxes) {
  return find_pair(boxes, [](size_t, size_t) { return true; });
}

}  // namespace ferry
