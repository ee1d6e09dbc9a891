// Characters of valid UTF-8 text, and validation.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ferry::unicode {

struct Character {
  char32_t point;
  uint32_t bytes;
};

/// The character at `at` of well-formed UTF-8, before its end.
inline Character character_at(const char* at) {
  const auto byte = [&](int i) { return static_cast<char32_t>(static_cast<unsigned char>(at[i])); };
  const char32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xE0) return {(first & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (first < 0xF0) return {(first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(first & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F),
          4};
}

/// Whether a byte is inside of a character, not at its start.
inline bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

/// Bytes of the longest prefix of `text` that is well-formed UTF-8.
size_t well_formed_prefix(std::string_view text);

/// `text` with each maximal invalid subpart replaced by U+FFFD (Unicode 16, section 3.9; Python's
/// errors="replace", Rust's from_utf8_lossy).
std::string replaced_malformed(std::string_view text);

void append(std::string& text, char32_t point);

}  // namespace ferry::unicode
