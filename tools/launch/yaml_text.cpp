#include "tools/launch/yaml_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>

#include "ckpt/base/error.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

using nlohmann::ordered_json;

// Reads the code point at `at` and moves `at` past it. invalid for what is not UTF-8.
uint32_t next_code_point(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  const size_t length = first < 0x80           ? 1
                        : (first >> 5) == 0x06 ? 2
                        : (first >> 4) == 0x0E ? 3
                        : (first >> 3) == 0x1E ? 4
                                               : 0;
  bool is_good = length > 0 && at + length <= text.size();
  uint32_t point = length == 1 ? first : first & (0x7FU >> length);
  for (size_t i = 1; is_good && i < length; ++i) {
    is_good = (byte(at + i) & 0xC0) == 0x80;
    point = point << 6 | (byte(at + i) & 0x3FU);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  is_good =
      is_good && point >= kLeast[length] && point <= 0x10FFFF && (point < 0xD800 || point > 0xDFFF);
  if (!is_good) {
    fail(ErrorKind::invalid, "'{}' is not UTF-8, and texts of YAML must be", printable(text));
  }
  at += length;
  return point;
}

std::string in_double_quotes(std::string_view text) {
  std::string quoted = "\"";
  for (size_t at = 0; at < text.size();) {
    const uint32_t point = next_code_point(text, at);
    if (point == '"' || point == '\\') {
      quoted += {'\\', static_cast<char>(point)};
    } else if (point == '\n') {
      quoted += "\\n";
    } else if (point >= 0x20 && point < 0x7F) {
      quoted += static_cast<char>(point);
    } else if (point < 0x100) {
      quoted += fmt::format("\\x{:02x}", point);
    } else if (point < 0x10000) {
      quoted += fmt::format("\\u{:04x}", point);
    } else {
      quoted += fmt::format("\\U{:08x}", point);
    }
  }
  return quoted + "\"";
}

// A letter or slash, then what no parser gives a meaning to. Words that some parser takes for a
// boolean or nothing are quoted.
bool is_plain_text(std::string_view text) {
  constexpr std::string_view kOthers[] = {"true", "false", "yes", "no",   "on",
                                          "off",  "y",     "n",   "null", "~"};
  const auto is_common = [](unsigned char c) {
    return c < 0x80 && (std::isalnum(c) != 0 || c == '_' || c == '.' || c == '/' || c == '-');
  };
  if (text.empty() || !std::ranges::all_of(text, is_common)) return false;
  if (std::isalpha(static_cast<unsigned char>(text[0])) == 0 && text[0] != '/') return false;
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::ranges::find(kOthers, lower) == std::end(kOthers);
}

// Lines of printable ASCII, the last one with its newline, none with leading blanks on the first
// line or trailing ones on any.
bool fits_a_block(std::string_view text) {
  if (!text.ends_with('\n') || text.size() < 2 || text[0] == ' ' || text[0] == '\n') return false;
  if (text.ends_with("\n\n") || text.find(" \n") != std::string_view::npos) return false;
  return std::ranges::all_of(text, [](char c) { return c == '\n' || (c >= 0x20 && c < 0x7F); });
}

std::string scalar_text(const ordered_json& value, const std::string& indent) {
  if (!value.is_string()) return value.dump();
  const auto& text = value.get_ref<const std::string&>();
  if (is_plain_text(text)) return text;
  if (!fits_a_block(text)) return in_double_quotes(text);
  std::string block = "|";
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    block += "\n";
    if (end > at) block += indent + text.substr(at, end - at);
    at = end + 1;
  }
  return block;
}

void put_yaml(std::string& text, const ordered_json& value, const std::string& indent);

// Appends a value after "key:" or "-", on its line or below it.
void put_value(std::string& text, const ordered_json& value, const std::string& indent,
               bool in_list) {
  if (!value.is_structured() || value.empty()) {
    text += " " + scalar_text(value, indent + "  ") + "\n";
  } else if (in_list) {
    std::string inner;
    put_yaml(inner, value, indent + "  ");
    text += " " + inner.substr(indent.size() + 2);
  } else {
    text += "\n";
    put_yaml(text, value, value.is_array() ? indent : indent + "  ");
  }
}

void put_yaml(std::string& text, const ordered_json& value, const std::string& indent) {
  if (value.is_array()) {
    for (const ordered_json& item : value) {
      text += indent + "-";
      put_value(text, item, indent, true);
    }
    return;
  }
  for (const auto& [key, item] : value.items()) {
    text += indent + (is_plain_text(key) ? key : in_double_quotes(key)) + ":";
    put_value(text, item, indent, false);
  }
}

}  // namespace

std::string yaml_text(const ordered_json& value) {
  std::string text;
  put_yaml(text, value, "");
  return text;
}

}  // namespace ferry::tool
