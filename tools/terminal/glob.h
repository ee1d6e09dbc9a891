// Shell patterns over tensor names.
#pragma once

#include <string_view>

namespace ferry::tool {

/// `*` matches any run of characters (dots and slashes too), `?` one, `[abc]`, `[a-z]` and `[!a]`
/// one of a set; all other characters match themselves.
bool glob_matches(std::string_view pattern, std::string_view name);

}  // namespace ferry::tool
