#include "text/bpe/byte_level.h"

#include <array>
#include <cstdint>

#include "text/unicode/utf8.h"

namespace ferry {
namespace {

constexpr char32_t kCharacters = 0x144;  // 0x100 and the 68 bytes that are not printable

struct ByteLevel {
  std::array<char32_t, 256> characters{};
  std::array<int16_t, kCharacters> bytes{};
};

constexpr ByteLevel make_byte_level() {
  ByteLevel level;
  level.bytes.fill(-1);
  char32_t next = 0x100;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255);
    const char32_t character = printable ? byte : next++;
    level.characters[byte] = character;
    level.bytes[character] = static_cast<int16_t>(byte);
  }
  return level;
}

constexpr ByteLevel kByteLevel = make_byte_level();

}  // namespace

std::string to_byte_level(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    unicode::append(text, kByteLevel.characters[static_cast<unsigned char>(byte)]);
  }
  return text;
}

std::optional<std::string> from_byte_level(std::string_view text) {
  std::string bytes;
  for (size_t at = 0; at < text.size();) {
    const unicode::Character character = unicode::character_at(text.data() + at);
    at += character.bytes;
    if (character.point >= kCharacters || kByteLevel.bytes[character.point] < 0) return {};
    bytes += static_cast<char>(kByteLevel.bytes[character.point]);
  }
  return bytes;
}

}  // namespace ferry
