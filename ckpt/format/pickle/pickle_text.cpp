// The textual opcodes of protocol 0, Python 2 strings and integers of any size.
#include <algorithm>
#include <charconv>

#include "ckpt/base/utf8.h"
#include "ckpt/format/pickle/pickle_machine.h"
#include "ckpt/format/pickle/pickle_opcodes.h"

namespace ferry {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// The number of exactly `digits` hexadecimal digits at `at`; -1 when they are not there.
int64_t hex_number(std::string_view text, size_t at, size_t digits) {
  if (text.size() - std::min(at, text.size()) < digits) return -1;
  int64_t number = 0;
  for (char c : text.substr(at, digits)) {
    if (hex_digit(c) < 0) return -1;
    number = number * 16 + hex_digit(c);
  }
  return number;
}

template <typename T>
bool parse_whole(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

// Hexadecimal, not decimal: linear in the length, whatever it is.
std::string hex_text(std::string_view little_endian) {
  const bool negative = static_cast<uint8_t>(little_endian.back()) >= 0x80;
  std::string magnitude(little_endian);
  if (negative) {
    unsigned carry = 1;
    for (char& c : magnitude) {
      carry += static_cast<uint8_t>(~c);
      c = static_cast<char>(carry);
      carry >>= 8;
    }
  }
  std::string text;
  for (size_t i = magnitude.size(); i-- > 0;) {
    static constexpr char kDigits[] = "0123456789abcdef";
    text += kDigits[static_cast<uint8_t>(magnitude[i]) >> 4];
    text += kDigits[magnitude[i] & 15];
  }
  text.erase(0, std::min(text.find_first_not_of('0'), text.size() - 1));
  return (negative ? "-0x" : "0x") + text;
}

}  // namespace

bool PickleMachine::push_line(uint8_t opcode) {
  switch (opcode) {
    case pickle::INT:
      push_int_line(take_line());
      return true;
    case pickle::LONG:
      push_long_line(take_line());
      return true;
    case pickle::FLOAT:
      push_float_line(take_line());
      return true;
    case pickle::STRING:
      push_quoted(take_line());
      return true;
    case pickle::UNICODE:
      push_raw_unicode(take_line());
      return true;
    default:
      return false;
  }
}

uint64_t PickleMachine::take_decimal() {
  uint64_t number = 0;
  if (!parse_whole(take_line(), number)) position_.corrupt("a line does not hold a number");
  return number;
}

void PickleMachine::push_long(std::string_view little_endian) {
  while (little_endian.size() > 8) {  // bytes that only repeat the sign
    const auto last = static_cast<uint8_t>(little_endian.back());
    const auto before = static_cast<uint8_t>(little_endian[little_endian.size() - 2]);
    if (!(last == 0 && before < 0x80) && !(last == 0xFF && before >= 0x80)) break;
    little_endian.remove_suffix(1);
  }
  if (little_endian.size() > 8) {
    push(builder_.text_node(ValueKind::big_integer, hex_text(little_endian)));
    return;
  }
  uint64_t bits = 0;
  for (size_t i = 0; i < little_endian.size(); ++i) {
    bits |= uint64_t{static_cast<uint8_t>(little_endian[i])} << 8 * i;
  }
  const size_t unused = 64 - 8 * little_endian.size();
  const bool is_zero = little_endian.empty();
  push(builder_.integer(is_zero ? 0 : static_cast<int64_t>(bits << unused) >> unused));
}

void PickleMachine::push_int_line(std::string_view text) {
  if (text == "00" || text == "01") return push(builder_.boolean(text == "01"));
  push_long_line(text);
}

void PickleMachine::push_long_line(std::string_view text) {
  if (text.ends_with('L')) text.remove_suffix(1);
  int64_t value = 0;
  if (parse_whole(text, value)) return push(builder_.integer(value));
  const std::string_view digits = text.substr(text.starts_with('-') ? 1 : 0);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (digits.empty() || !std::all_of(digits.begin(), digits.end(), is_digit)) {
    position_.corrupt("a line does not hold an integer");
  }
  push(builder_.text_node(ValueKind::big_integer, std::string(text)));
}

void PickleMachine::push_float_line(std::string_view text) {
  double value = 0;
  if (!parse_whole(text, value)) position_.corrupt("a line does not hold a number");
  push(builder_.real(value));
}

void PickleMachine::push_python2_string(std::string bytes) {
  const bool is_text = utf8_prefix(bytes, true) == bytes.size();
  push(builder_.text_node(is_text ? ValueKind::string : ValueKind::bytes, std::move(bytes)));
}

// A string literal as Python's repr() writes it.
void PickleMachine::push_quoted(std::string_view text) {
  const bool is_quoted = text.size() >= 2 && text.front() == text.back() &&
                         (text.front() == '\'' || text.front() == '"');
  if (!is_quoted) position_.corrupt("a string has no quotes");
  text = text.substr(1, text.size() - 2);
  std::string bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      bytes += text[i];
      continue;
    }
    if (++i == text.size()) position_.corrupt("a string ends in a backslash");
    static constexpr std::string_view kEscapes = "\\'\"abfnrtv";
    static constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
    if (const size_t which = kEscapes.find(text[i]); which != std::string_view::npos) {
      bytes += kMeanings[which];
    } else if (const int64_t code = hex_number(text, i + 1, 2); text[i] == 'x' && code >= 0) {
      bytes += static_cast<char>(code);
      i += 2;
    } else {
      position_.corrupt("a string has an unknown escape");
    }
  }
  push_python2_string(std::move(bytes));
}

// Latin-1 text with \uXXXX and \UXXXXXXXX.
void PickleMachine::push_raw_unicode(std::string_view text) {
  std::string utf8;
  for (size_t i = 0; i < text.size(); ++i) {
    const char next = text[i] == '\\' && i + 1 < text.size() ? text[i + 1] : '\0';
    const size_t digits = next == 'u' ? 4 : next == 'U' ? 8 : 0;
    if (digits == 0) {
      append_utf8(utf8, static_cast<uint8_t>(text[i]));
      continue;
    }
    const int64_t code = hex_number(text, i + 2, digits);
    if (code < 0 || code > 0x10FFFF) position_.corrupt("a string has a broken escape");
    append_utf8(utf8, static_cast<char32_t>(code));
    i += 1 + digits;
  }
  push(builder_.text_node(ValueKind::string, std::move(utf8)));
}

}  // namespace ferry
