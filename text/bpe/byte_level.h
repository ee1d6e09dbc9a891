// The printable characters that GPT-2's files write for bytes.
// Source: openai/gpt-2, src/encoder.py, bytes_to_unicode().
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ferry {

/// Each byte as its character.
std::string to_byte_level(std::string_view bytes);

/// The bytes of such characters; nothing where one of `text` is none.
std::optional<std::string> from_byte_level(std::string_view text);

}  // namespace ferry
