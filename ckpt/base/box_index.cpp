#include "ckpt/base/box_index.h"

#include <algorithm>

namespace ferry {

BoxIndex::BoxIndex(const std::vector<Box>& boxes) : boxes_(boxes) {
  for (uint32_t i = 0; i < boxes_.size(); ++i) {
    const Dims& size = boxes_[i].size;
    if (std::find(size.begin(), size.end(), 0) == size.end()) order_.push_back(i);
  }
  const size_t rank = boxes_.empty() ? 0 : boxes_[0].size.size();
  if (rank == 0) return;
  size_t most = 0;
  for (size_t axis = 0; axis < rank; ++axis) {
    std::vector<int64_t> offsets;
    for (uint32_t i : order_) offsets.push_back(boxes_[i].offset[axis]);
    std::sort(offsets.begin(), offsets.end());
    const size_t distinct = std::unique(offsets.begin(), offsets.end()) - offsets.begin();
    if (distinct > most) {
      most = distinct;
      axis_ = axis;
    }
  }
  std::stable_sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) {
    return boxes_[a].offset[axis_] < boxes_[b].offset[axis_];
  });
  for (uint32_t i : order_) longest_ = std::max(longest_, boxes_[i].size[axis_]);
}

std::vector<uint32_t> BoxIndex::overlapping(const Box& box) const {
  if (box.size.empty()) return order_;
  const int64_t low = box.offset[axis_];
  const int64_t high = low + box.size[axis_];
  auto at =
      std::upper_bound(order_.begin(), order_.end(), low - longest_,
                       [&](int64_t value, uint32_t i) { return value < boxes_[i].offset[axis_]; });
  std::vector<uint32_t> found;
  for (; at != order_.end() && boxes_[*at].offset[axis_] < high; ++at) {
    if (overlaps(boxes_[*at], box)) found.push_back(*at);
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace ferry
