#include "tools/terminal/glob.h"

#include <cstddef>

namespace ferry::tool {
namespace {

constexpr size_t kNone = std::string_view::npos;

// Matches one character against the pattern item at `at`, which it moves past the item. A '['
// without its ']' stands for itself.
bool matches_one(std::string_view pattern, size_t& at, char c) noexcept {
  const char item = pattern[at++];
  if (item == '?') return true;
  if (item != '[') return item == c;
  size_t inside = at;
  const bool negated =
      inside < pattern.size() && (pattern[inside] == '!' || pattern[inside] == '^');
  if (negated) ++inside;
  const size_t close = pattern.find(']', inside + 1);  // a ']' that comes first is a member
  if (close == kNone) return c == '[';
  bool found = false;
  for (size_t i = inside; i < close; ++i) {
    if (i + 2 < close && pattern[i + 1] == '-') {
      found = found || (pattern[i] <= c && c <= pattern[i + 2]);
      i += 2;
    } else {
      found = found || pattern[i] == c;
    }
  }
  at = close + 1;
  return found != negated;
}

}  // namespace

bool glob_matches(std::string_view pattern, std::string_view name) noexcept {
  size_t p = 0, n = 0;
  size_t star = kNone, star_name = 0;  // where to go on when what follows the last '*' fails
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_name = n;
      continue;
    }
    size_t next = p;
    if (p < pattern.size() && matches_one(pattern, next, name[n])) {
      p = next;
      ++n;
    } else if (star != kNone) {
      p = star + 1;
      n = ++star_name;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace ferry::tool
