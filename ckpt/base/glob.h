// Shell patterns for names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ferry {

/// Whether a name fits a shell pattern: `*` is any run of characters (dots and slashes too), `?`
/// one, `[abc]`, `[a-z]` and `[!a]` one of a set; all other characters are themselves.
bool glob_matches(std::string_view pattern, std::string_view name);

bool matches_any(const std::vector<std::string>& patterns, std::string_view name);

}  // namespace ferry
