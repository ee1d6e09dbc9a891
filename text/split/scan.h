// Runs of characters of a class: what splitters are made of.
#pragma once

#include <string_view>

#include "text/split/splitter.h"
#include "text/unicode/classes.h"
#include "text/unicode/utf8.h"

namespace ferry {

/// A place in a text and the classes of its characters.
class Scan {
 public:
  Scan(std::string_view text, const uint8_t* classes)
      : text_(text.data()), end_(text.size()), classes_(classes) {}

  size_t end() const { return end_; }
  char byte(size_t at) const { return text_[at]; }
  bool is(size_t at, char byte) const { return at < end_ && text_[at] == byte; }
  bool is_newline(size_t at) const { return at < end_ && (text_[at] == '\n' || text_[at] == '\r'); }
  size_t next(size_t at) const { return at + unicode::character_at(text_ + at).bytes; }
  /// 0 at the end.
  uint8_t classes(size_t at) const {
    return at < end_ ? classes_[unicode::character_at(text_ + at).point] : 0;
  }
  /// The end of the run of characters that have one of `wanted`.
  size_t run(size_t at, uint8_t wanted) const {
    while (at < end_) {
      const unicode::Character character = unicode::character_at(text_ + at);
      if ((classes_[character.point] & wanted) == 0) break;
      at += character.bytes;
    }
    return at;
  }
  /// The end of the run of characters that have none of `unwanted`.
  size_t run_without(size_t at, uint8_t unwanted) const {
    while (at < end_) {
      const unicode::Character character = unicode::character_at(text_ + at);
      if ((classes_[character.point] & unwanted) != 0) break;
      at += character.bytes;
    }
    return at;
  }
  size_t newlines(size_t at) const {
    while (is_newline(at)) ++at;
    return at;
  }
  /// \p{N}{1,digits} from a number.
  size_t numbers(size_t at, int digits) const {
    for (; digits > 0 && (classes(at) & unicode::kNumber) != 0; --digits) at = next(at);
    return at;
  }
  /// (?i:'s|'t|'re|'ve|'m|'ll|'d); `at` itself where there is none. Without `fold` lower case
  /// alone.
  size_t contraction(size_t at, bool fold) const;
  /// \s+(?!\S)|\s+ from whitespace.
  size_t spaces(size_t at) const {
    const size_t to = run(at, unicode::kSpace);
    if (to == end_) return to;
    const size_t last = last_character(to);
    return last > at ? last : to;
  }
  /// \s*[\r\n]+|\s+(?!\S)|\s+ from whitespace.
  size_t lines_or_spaces(size_t at) const {
    const size_t to = run(at, unicode::kSpace);
    for (size_t newline = to; newline > at; --newline) {
      if (is_newline(newline - 1)) return newline;
    }
    if (to == end_) return to;
    const size_t last = last_character(to);
    return last > at ? last : to;
  }

 private:
  size_t last_character(size_t to) const {
    do --to;
    while ((static_cast<unsigned char>(text_[to]) & 0xC0) == 0x80);
    return to;
  }

  const char* text_;
  size_t end_;
  const uint8_t* classes_;
};

}  // namespace ferry
