// UTF-8 as Python writes it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ferry {

/// Length of the longest prefix of `text` that is well-formed UTF-8. Python's "surrogatepass" form
/// lets lone surrogates (U+D800 to U+DFFF) through: `allow_surrogates`.
size_t utf8_prefix(std::string_view text, bool allow_surrogates) noexcept;

/// `text` with every byte that is not part of well-formed UTF-8 replaced by U+FFFD.
std::string to_utf8(std::string_view text);

/// Appends the UTF-8 form of a code point (at most U+10FFFF; surrogates as they are).
void append_utf8(std::string& text, char32_t code_point);

/// The start of `text` and "..." where it has more than so many bytes; never half a character.
std::string shortened(std::string text, size_t most_bytes);

}  // namespace ferry
