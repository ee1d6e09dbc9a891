// Ranges of characters, in order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>

namespace ferry::unicode {

/// The range, of those from `first` to `last`, that has the character; null when none does.
template <typename Range, size_t kCount>
const Range* range_of(const Range (&ranges)[kCount], char32_t point) {
  const auto* found =
      std::upper_bound(std::begin(ranges), std::end(ranges), point,
                       [](char32_t wanted, const Range& range) { return wanted <= range.last; });
  return found != std::end(ranges) && found->first <= point ? found : nullptr;
}

}  // namespace ferry::unicode
