// Sets of characters in patterns of PCRE2, which has no classes in classes.
#pragma once

#include <string>
#include <vector>

namespace ferry {

/// One character of the set, as a class's items and as patterns of one character each, either of
/// which may be empty.
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

}  // namespace ferry
