// Command lines that a user may paste.
#pragma once

#include <string>
#include <string_view>

namespace ferry::tool {

/// `text` as one word of a shell: in quotes where it holds more than letters, digits and _@%+=:,./-
std::string shell_word(std::string_view text);

}  // namespace ferry::tool
