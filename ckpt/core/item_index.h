// Finds the item of a plan that bytes of a target file belong to.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ckpt/core/plan.h"

namespace ferry {

class ItemIndex {
 public:
  /// Keeps a reference to the items. Those without a byte are never found.
  explicit ItemIndex(std::span<const Item> items);

  /// Position of the first item that shares a byte with [offset, offset + length) of `file`. The
  /// items must not overlap.
  std::optional<uint32_t> find(uint32_t file, uint64_t offset, uint64_t length) const;

  /// Positions of the items that hold bytes, by file and offset.
  const std::vector<uint32_t>& in_order() const noexcept { return order_; }

 private:
  std::span<const Item> items_;
  std::vector<uint32_t> order_;
};

}  // namespace ferry
