// Tensors chosen and renamed on the command line: --only, --drop, --rename.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ferry::tool {

/// Old and new name of tensors: whole names, or both with one '*', which stands for the same text.
using Rename = std::pair<std::string, std::string>;

/// The value "OLD=NEW" of --rename; invalid for anything else.
Rename parse_rename(const std::string& text);

/// The new name by the first rename that fits, or `name`. `used`, if given, notes which that was.
std::string renamed(std::string_view name, const std::vector<Rename>& renames,
                    std::vector<bool>* used = nullptr);

bool matches_any(const std::vector<std::string>& patterns, std::string_view name);

}  // namespace ferry::tool
