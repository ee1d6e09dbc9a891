#include "text/split/character_set.h"

#include <fmt/format.h>

#include <vector>

#include "text/split/splitters.h"
#include "text/unicode/classes.h"
#include "text/unicode/utf8.h"

namespace ferry {

namespace {

// Characters with classes that are unassigned in PCRE2's Unicode version.
std::vector<char32_t> unknown_characters() {
  const uint8_t* classes = unicode::character_classes(unicode::Version::v16);
  std::string known;
  for (char32_t point = 0x80; point < 0x110000; ++point) {
    if (classes[point] != 0) unicode::append(known, point);
  }
  const auto unassigned = make_regex_splitter("\\p{Cn}+", "characters of Unicode");
  std::vector<char32_t> unknown;
  for (size_t at = 0; at < known.size();) {
    const Match match = unassigned->find(known, at);
    for (at = match.begin; at < match.end;) {
      const unicode::Character character = unicode::character_at(known.data() + at);
      unknown.push_back(character.point);
      at += character.bytes;
    }
  }
  return unknown;
}

bool has(std::string_view property, char32_t point) {
  using namespace unicode;
  const uint8_t classes = character_classes(Version::v16)[point];
  const bool is_letter = (classes & kLetter) != 0, is_upper = (classes & kUpperLike) != 0,
             is_lower = (classes & kLowerLike) != 0;
  if (property == "L" || property == "Alphabetic") return is_letter;
  if (property == "Lu") return is_letter && !is_lower;
  if (property == "Ll") return is_letter && !is_upper;
  if (property == "Lm" || property == "Lo") return is_letter && is_upper && is_lower;
  if (property == "M") return (classes & kMark) != 0;
  if (property == "N") return (classes & kNumber) != 0;
  if (property == "Nd") return (classes & kNumber) != 0 && unicode::is_word(point);
  if (property == "S") return (classes & kSymbol) != 0;
  if (property == "P") return (classes & kPunctuation) != 0;
  if (property == "w") return unicode::is_word(point);
  // Extensions H and I of the ideographs.
  if (property == "Han") {
    return (point >= 0x31350 && point <= 0x323AF) || (point >= 0x2EBF0 && point <= 0x2EE5D);
  }
  return false;
}

}  // namespace

std::string newer_characters(std::string_view property) {
  static const std::vector<char32_t> unknown = unknown_characters();
  std::string items;
  for (size_t i = 0; i < unknown.size();) {
    const char32_t first = unknown[i];
    char32_t last = first;
    if (!has(property, unknown[i++])) continue;
    while (i < unknown.size() && unknown[i] == last + 1 && has(property, unknown[i])) {
      last = unknown[i++];
    }
    items += fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", static_cast<uint32_t>(first),
                         static_cast<uint32_t>(last));
  }
  return items;
}

}  // namespace ferry
