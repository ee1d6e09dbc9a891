#include "ckpt/base/utf8.h"

#include <algorithm>

#include <cstdint>
#include <cstring>

namespace ferry {
namespace {

// Bytes of the well-formed sequence that `text` starts with; 0 when there is none.
// The ranges are table 3-7 of the Unicode standard.
size_t sequence_length(std::string_view text, bool allow_surrogates) noexcept {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const auto in = [&](size_t i, uint8_t low, uint8_t high) {
    return i < text.size() && byte(i) >= low && byte(i) <= high;
  };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return in(1, 0x80, 0xBF) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const uint8_t low = first == 0xE0 ? 0xA0 : 0x80;
    const uint8_t high = first == 0xED && !allow_surrogates ? 0x9F : 0xBF;
    return in(1, low, high) && in(2, 0x80, 0xBF) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const uint8_t low = first == 0xF0 ? 0x90 : 0x80;
    const uint8_t high = first == 0xF4 ? 0x8F : 0xBF;
    return in(1, low, high) && in(2, 0x80, 0xBF) && in(3, 0x80, 0xBF) ? 4 : 0;
  }
  return 0;
}

}  // namespace

size_t utf8_prefix(std::string_view text, bool allow_surrogates) noexcept {
  size_t at = 0;
  while (at < text.size()) {
    // Names and arguments are ASCII but for rare exceptions: eight bytes at a time.
    uint64_t word;
    if (at + sizeof word <= text.size()) {
      std::memcpy(&word, text.data() + at, sizeof word);
      if ((word & 0x8080808080808080u) == 0) {
        at += sizeof word;
        continue;
      }
    }
    const size_t length = sequence_length(text.substr(at), allow_surrogates);
    if (length == 0) break;
    at += length;
  }
  return at;
}

std::string to_utf8(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t good = utf8_prefix(text, false);
    result.append(text.substr(0, good));
    text.remove_prefix(good);
    if (text.empty()) break;
    result += "\xEF\xBF\xBD";
    text.remove_prefix(1);
  }
  return result;
}

void append_utf8(std::string& text, char32_t code_point) {
  const auto add = [&](uint32_t byte) { text += static_cast<char>(byte); };
  if (code_point < 0x80) {
    add(code_point);
  } else if (code_point < 0x800) {
    add(0xC0 | code_point >> 6);
    add(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    add(0xE0 | code_point >> 12);
    add(0x80 | (code_point >> 6 & 0x3F));
    add(0x80 | (code_point & 0x3F));
  } else {
    add(0xF0 | code_point >> 18);
    add(0x80 | (code_point >> 12 & 0x3F));
    add(0x80 | (code_point >> 6 & 0x3F));
    add(0x80 | (code_point & 0x3F));
  }
}

std::string shortened(std::string text, size_t most_bytes) {
  if (text.size() <= most_bytes) return text;
  size_t end = most_bytes - std::min<size_t>(most_bytes, 3);
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

}  // namespace ferry
