// Lists of names: of files, tensors, members.
#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace ferry {

/// Whether one of `names` (any range of strings) is `name`.
template <typename Names>
bool has_name(const Names& names, std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

/// The first names, for a message: "a, b, c and 4 more".
std::string some_of(const std::vector<std::string>& names, size_t most = 5);

}  // namespace ferry
