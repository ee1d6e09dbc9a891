#include "ckpt/core/item_index.h"

#include <algorithm>
#include <tuple>

namespace ferry {

ItemIndex::ItemIndex(std::span<const Item> items) : items_(items) {
  for (uint32_t i = 0; i < items.size(); ++i) {
    if (items[i].length > 0) order_.push_back(i);
  }
  std::sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) {
    return std::tie(items[a].file, items[a].offset) < std::tie(items[b].file, items[b].offset);
  });
}

std::optional<uint32_t> ItemIndex::find(uint32_t file, uint64_t offset, uint64_t length) const {
  // The first item that ends after `offset`.
  const auto at = std::partition_point(order_.begin(), order_.end(), [&](uint32_t i) {
    const Item& item = items_[i];
    return item.file < file || (item.file == file && item.offset + item.length <= offset);
  });
  if (at == order_.end()) return std::nullopt;
  const Item& item = items_[*at];
  const bool shares = item.file == file && (item.offset <= offset || item.offset - offset < length);
  return shares ? std::optional(*at) : std::nullopt;
}

}  // namespace ferry
