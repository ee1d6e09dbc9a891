// Shell patterns over tensor names.
#pragma once

#include <string_view>

namespace ferry::tool {

/// `*` matches any run of characters (dots too), `?` one, `[abc]`, `[a-z]` and `[!a]` one of a set;
/// all other characters match themselves. Takes time at most the product of the lengths.
bool glob_matches(std::string_view pattern, std::string_view name) noexcept;

}  // namespace ferry::tool
