// Finds, among the many boxes of one tensor, those that may overlap a given one.
//
// Chunks are a grid in practice. The index sorts them along the axis that separates most of them,
// so that a query visits few; comparing all pairs would be quadratic in the number of ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "ckpt/base/box.h"

namespace ferry {

class BoxIndex {
 public:
  BoxIndex() = default;
  /// All boxes have one rank. Keeps no reference to them.
  explicit BoxIndex(const std::vector<Box>& boxes);

  /// Positions of the boxes that share an element with `box`, rising.
  std::vector<uint32_t> overlapping(const Box& box) const;

 private:
  std::vector<Box> boxes_;
  std::vector<uint32_t> order_;  // positions by begin along axis_; empty boxes left out
  size_t axis_ = 0;
  int64_t longest_ = 0;  // along axis_
};

}  // namespace ferry
