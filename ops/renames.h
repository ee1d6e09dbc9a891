// Tensors that get another name.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ferry {

/// Old and new name of tensors: whole names, or both with one '*', which stands for the same text.
using Rename = std::pair<std::string, std::string>;

/// The new name by the first rename that fits, or `name`. `used`, if given, notes which that was.
std::string renamed(std::string_view name, const std::vector<Rename>& renames,
                    std::vector<bool>* used = nullptr);

}  // namespace ferry
