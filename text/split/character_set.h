// Character sets for PCRE2, which does not support nested classes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ferry {

/// Matches one character of the set: items of a class, and patterns of one character each; either
/// may be empty.
struct CharacterSet {
  std::string items;
  std::vector<std::string> patterns;

  bool is_flat() const { return patterns.empty(); }
  void add(const CharacterSet& other) {
    items += other.items;
    patterns.insert(patterns.end(), other.patterns.begin(), other.patterns.end());
  }
  std::string pattern() const {
    if (is_flat()) return items.empty() ? "(?!)" : "[" + items + "]";
    if (items.empty() && patterns.size() == 1) return patterns[0];
    std::string all = "(?:";
    if (!items.empty()) all += "[" + items + "]|";
    for (size_t i = 0; i < patterns.size(); ++i) all += (i == 0 ? "" : "|") + patterns[i];
    return all + ")";
  }
  CharacterSet complement() const {
    if (is_flat() && !items.empty()) return {"", {"[^" + items + "]"}};
    return {"", {"(?:(?!" + pattern() + ")(?s:.))"}};
  }
  CharacterSet intersection(const CharacterSet& other) const {
    return {"", {"(?:(?=" + other.pattern() + ")" + pattern() + ")"}};
  }
};

// Characters that an older PCRE2 does not know.

/// Items that a PCRE2 class needs in addition to \p{property} to have all of its characters in
/// Unicode 16: empty if the library knows them, or the property is not one of L, Lu, Ll, Lm, Lo, M,
/// N, Nd, S, P, Alphabetic, Han, or "w" for \w.
std::string newer_characters(std::string_view property);

}  // namespace ferry
