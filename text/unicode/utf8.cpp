#include "text/unicode/utf8.h"

#include <cstring>

namespace ferry::unicode {
namespace {

struct Sequence {
  size_t bytes;  // of the sequence
  bool well_formed;
};

// The sequence at `at`, whose first byte is not ASCII.
Sequence sequence_at(const unsigned char* at, const unsigned char* end) {
  const unsigned char first = *at;
  size_t length = 0;
  unsigned char low = 0x80, high = 0xBF;  // of the second byte
  if (first >= 0xC2 && first <= 0xDF) {
    length = 2;
  } else if (first >= 0xE0 && first <= 0xEF) {
    length = 3;
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;  // surrogates
  } else if (first >= 0xF0 && first <= 0xF4) {
    length = 4;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;  // beyond U+10FFFF
  } else {
    return {1, false};
  }
  size_t bytes = 1;
  while (bytes < length && at + bytes < end && at[bytes] >= low && at[bytes] <= high) {
    ++bytes;
    low = 0x80, high = 0xBF;
  }
  return {bytes, bytes == length};
}

}  // namespace

size_t well_formed_prefix(std::string_view text) {
  const auto* begin = reinterpret_cast<const unsigned char*>(text.data());
  const auto* const end = begin + text.size();
  const auto* at = begin;
  while (at < end) {
    uint64_t eight = 0;
    while (end - at >= 8 && (std::memcpy(&eight, at, 8), (eight & 0x8080808080808080u) == 0)) {
      at += 8;
    }
    if (at == end) break;
    if (*at < 0x80) {
      ++at;
      continue;
    }
    const Sequence sequence = sequence_at(at, end);
    if (!sequence.well_formed) break;
    at += sequence.bytes;
  }
  return static_cast<size_t>(at - begin);
}

std::string replaced_malformed(std::string_view text) {
  std::string result;
  while (true) {
    const size_t good = well_formed_prefix(text);
    result += text.substr(0, good);
    text.remove_prefix(good);
    if (text.empty()) return result;
    const auto* at = reinterpret_cast<const unsigned char*>(text.data());
    text.remove_prefix(sequence_at(at, at + text.size()).bytes);
    result += "\xEF\xBF\xBD";
  }
}

void append(std::string& text, char32_t point) {
  const auto put = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (point < 0x80) {
    put(point);
  } else if (point < 0x800) {
    put(0xC0 | point >> 6), put(0x80 | (point & 0x3F));
  } else if (point < 0x10000) {
    put(0xE0 | point >> 12), put(0x80 | (point >> 6 & 0x3F)), put(0x80 | (point & 0x3F));
  } else {
    put(0xF0 | point >> 18), put(0x80 | (point >> 12 & 0x3F));
    put(0x80 | (point >> 6 & 0x3F)), put(0x80 | (point & 0x3F));
  }
}

}  // namespace ferry::unicode
