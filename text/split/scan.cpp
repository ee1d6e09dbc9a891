#include "text/split/scan.h"

namespace ferry {

size_t Scan::contraction(size_t at, bool fold) const {
  if (!is(at, '\'') || at + 1 >= end_) return at;
  const auto lower = [&](size_t i) -> char {
    if (i >= end_) return '\0';
    const char letter = text_[i];
    return fold && letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter + ('a' - 'A'))
                                                  : letter;
  };
  switch (lower(at + 1)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return at + 2;
    case 'r':
    case 'v':
      return lower(at + 2) == 'e' ? at + 3 : at;
    case 'l':
      return lower(at + 2) == 'l' ? at + 3 : at;
    case '\xC5':  // U+017F, long s, is an s where case does not count
      return fold && is(at + 2, '\xBF') ? at + 3 : at;
    default:
      return at;
  }
}

}  // namespace ferry
