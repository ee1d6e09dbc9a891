#include <string_view>

#include "text/split/splitter.h"
#include "text/split/splitters.h"
#include "text/unicode/classes.h"
#include "text/unicode/utf8.h"

namespace ferry {

// Scanning of runs of characters of a class.

/// A text and the classes of its characters.
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
  /// The end of the run of characters with one of `included`.
  size_t run(size_t at, uint8_t included) const {
    while (at < end_) {
      const unicode::Character character = unicode::character_at(text_ + at);
      if ((classes_[character.point] & included) == 0) break;
      at += character.bytes;
    }
    return at;
  }
  /// The end of the run of characters with none of `excluded`.
  size_t run_without(size_t at, uint8_t excluded) const {
    while (at < end_) {
      const unicode::Character character = unicode::character_at(text_ + at);
      if ((classes_[character.point] & excluded) != 0) break;
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
  /// (?i:'s|'t|'re|'ve|'m|'ll|'d); `at` itself if there is none. Without `fold` only lower case.
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
    case '\xC5':  // U+017F, long s, equals s case-insensitively
      return fold && is(at + 2, '\xBF') ? at + 3 : at;
    default:
      return at;
  }
}

namespace {

using unicode::kLetter, unicode::kNumber, unicode::kSpace, unicode::kMark, unicode::kUpperLike;
using unicode::kLowerLike, unicode::kSymbol, unicode::kPunctuation;
using unicode::Version, unicode::character_at, unicode::character_classes;

class ClassSplitter : public Splitter {
 public:
  explicit ClassSplitter(Version version) : classes_(character_classes(version)) {}

 protected:
  Scan scan(std::string_view text) const { return {text, classes_}; }

 private:
  const uint8_t* classes_;
};

// A splitter whose matches have no gaps: Derived::end_of() returns the end of the match that starts
// at a position.
template <typename Derived>
class GaplessSplitter : public ClassSplitter {
 public:
  using ClassSplitter::ClassSplitter;
  Match find(std::string_view text, size_t from) const final {
    if (from >= text.size()) return {text.size(), text.size()};
    return {from, static_cast<const Derived&>(*this).end_of(scan(text), from)};
  }
};

class Gpt2Splitter final : public GaplessSplitter<Gpt2Splitter> {
 public:
  using GaplessSplitter::GaplessSplitter;
  static size_t end_of(const Scan& scan, size_t at) {
    if (const size_t to = scan.contraction(at, false); to > at) return to;
    size_t first = at;
    uint8_t classes = scan.classes(at);
    if (scan.byte(at) == ' ' && at + 1 < scan.end()) {
      const uint8_t second = scan.classes(at + 1);
      if ((second & kSpace) == 0) first = at + 1, classes = second;
    }
    if ((classes & kLetter) != 0) return scan.run(first, kLetter);
    if ((classes & kNumber) != 0) return scan.run(first, kNumber);
    if ((classes & kSpace) == 0) return scan.run_without(first, kSpace | kLetter | kNumber);
    return scan.spaces(at);
  }
};

class Cl100kSplitter final : public GaplessSplitter<Cl100kSplitter> {
 public:
  Cl100kSplitter(Version version, const Cl100kOptions& options)
      : GaplessSplitter(version), options_(options) {}
  size_t end_of(const Scan& scan, size_t at) const {
    if (const size_t to = scan.contraction(at, options_.contractions_fold); to > at) return to;
    const uint8_t classes = scan.classes(at);
    if ((classes & kLetter) != 0) return scan.run(at, kLetter);
    if ((classes & kNumber) != 0) return scan.numbers(at, options_.digits);
    const size_t second = scan.next(at);
    const uint8_t next = scan.classes(second);
    if (!scan.is_newline(at) && (next & kLetter) != 0) return scan.run(second, kLetter);
    constexpr uint8_t kNotOther = kSpace | kLetter | kNumber;
    if ((classes & kSpace) == 0) return scan.newlines(scan.run_without(at, kNotOther));
    if (scan.is(at, ' ') && second < scan.end() && (next & kNotOther) == 0) {
      return scan.newlines(scan.run_without(second, kNotOther));
    }
    if (options_.end_is_whole) {
      if (const size_t to = scan.run(at, kSpace); to == scan.end()) return to;
    }
    return scan.lines_or_spaces(at);
  }

 private:
  Cl100kOptions options_;
};

class O200kSplitter final : public GaplessSplitter<O200kSplitter> {
 public:
  O200kSplitter(Version version, const O200kOptions& options)
      : GaplessSplitter(version), options_(options) {}
  // Tries the alternatives with and without the optional prefix of a word, in the pattern's order.
  size_t end_of(const Scan& scan, size_t at) const {
    const uint8_t classes = scan.classes(at);
    const bool may_precede = (classes & (kLetter | kNumber)) == 0 && !scan.is_newline(at);
    const bool may_begin = (classes & (kLetter | kMark)) != 0;
    if (may_precede || may_begin) {
      size_t to = at;
      for (const bool ends_low : {true, false}) {
        const auto word = ends_low ? low_word : high_word;
        if (to == at && may_precede) to = word(scan, scan.next(at), at);
        if (to == at && may_begin) to = word(scan, at, at);
      }
      if (to > at) return options_.contractions ? scan.contraction(to, true) : to;
    }
    if ((classes & kNumber) != 0) return scan.numbers(at, options_.digits);
    constexpr uint8_t kNotOther = kSpace | kLetter | kNumber;
    const size_t second = scan.next(at);
    size_t others = at;
    if ((classes & kSpace) == 0) {
      others = scan.run_without(at, kNotOther);
    } else if (scan.is(at, ' ') && second < scan.end() && (scan.classes(second) & kNotOther) == 0) {
      others = scan.run_without(second, kNotOther);
    }
    if (others > at) {
      while (scan.is_newline(others) || scan.is(others, '/')) ++others;
      return others;
    }
    return scan.lines_or_spaces(at);
  }

 private:
  // [upper-like]*[lower-like]+ from `at`; `none` if there is no such word.
  static size_t low_word(const Scan& scan, size_t at, size_t none) {
    size_t both = none;  // after the last character that is both upper- and lower-like
    while (at < scan.end()) {
      const uint8_t classes = scan.classes(at);
      if ((classes & kUpperLike) == 0) {
        return (classes & kLowerLike) != 0 ? scan.run(at, kLowerLike) : both;
      }
      at = scan.next(at);
      if ((classes & kLowerLike) != 0) both = at;
    }
    return both;
  }

  // [upper-like]+[lower-like]* from `at`.
  static size_t high_word(const Scan& scan, size_t at, size_t none) {
    const size_t high = scan.run(at, kUpperLike);
    return high > at ? scan.run(high, kLowerLike) : none;
  }

  O200kOptions options_;
};

// DeepSeek-V3's pattern, which leaves gaps of characters without a class.
class DeepseekSplitter final : public ClassSplitter {
 public:
  using ClassSplitter::ClassSplitter;
  Match find(std::string_view text, size_t from) const override {
    const Scan scan = this->scan(text);
    for (size_t at = from; at < text.size(); at = scan.next(at)) {
      if (const size_t to = end_of(scan, at); to > at) return {at, to};
    }
    return {text.size(), text.size()};
  }

 private:
  static bool is_ascii_letter(char byte) {
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
  }

  static size_t end_of(const Scan& scan, size_t at) {
    const uint8_t classes = scan.classes(at);
    const size_t second = scan.next(at);
    constexpr uint8_t kWord = kLetter | kMark, kSign = kPunctuation | kSymbol;
    if (second == at + 1 && (classes & kSign) != 0) {
      size_t to = second;
      while (to < scan.end() && is_ascii_letter(scan.byte(to))) ++to;
      if (to > second) return to;
    }
    if ((classes & kWord) != 0) return scan.run(at, kWord);
    if ((classes & kSign) == 0 && !scan.is_newline(at) && (scan.classes(second) & kWord) != 0) {
      return scan.run(second, kWord);
    }
    if ((classes & kSign) != 0) return scan.newlines(scan.run(at, kSign));
    if (scan.is(at, ' ') && (scan.classes(second) & kSign) != 0) {
      return scan.newlines(scan.run(second, kSign));
    }
    return (classes & kSpace) != 0 ? scan.lines_or_spaces(at) : at;
  }
};

class NumberSplitter final : public ClassSplitter {
 public:
  NumberSplitter(Version version, int digits) : ClassSplitter(version), digits_(digits) {}
  Match find(std::string_view text, size_t from) const override {
    const Scan scan = this->scan(text);
    const size_t at = scan.run_without(from, kNumber);
    return {at, scan.numbers(at, digits_)};
  }

 private:
  int digits_;
};

class CjkSplitter final : public Splitter {
 public:
  Match find(std::string_view text, size_t from) const override {
    size_t at = from;
    while (at < text.size() && !holds(text, at)) at += character_at(text.data() + at).bytes;
    size_t to = at;
    while (to < text.size() && holds(text, to)) to += character_at(text.data() + to).bytes;
    return {at, to};
  }

 private:
  static bool holds(std::string_view text, size_t at) {
    const char32_t point = character_at(text.data() + at).point;
    return (point >= 0x4E00 && point <= 0x9FA5) || (point >= 0x3040 && point <= 0x30FF);
  }
};

class WordSplitter final : public ClassSplitter {
 public:
  WordSplitter() : ClassSplitter(Version::v16) {}
  Match find(std::string_view text, size_t from) const override {
    const Scan scan = this->scan(text);
    const size_t begin = scan.run(from, kSpace);
    if (begin == text.size()) return {begin, begin};
    const bool is_word = unicode::is_word(character_at(text.data() + begin).point);
    size_t end = scan.next(begin);
    while (end < text.size() && (scan.classes(end) & kSpace) == 0 &&
           unicode::is_word(character_at(text.data() + end).point) == is_word) {
      end = scan.next(end);
    }
    return {begin, end};
  }
};

}  // namespace

std::unique_ptr<const Splitter> make_gpt2_splitter(Version version) {
  return std::make_unique<Gpt2Splitter>(version);
}
std::unique_ptr<const Splitter> make_cl100k_splitter(Version version,
                                                     const Cl100kOptions& options) {
  return std::make_unique<Cl100kSplitter>(version, options);
}
std::unique_ptr<const Splitter> make_o200k_splitter(Version version, const O200kOptions& options) {
  return std::make_unique<O200kSplitter>(version, options);
}
std::unique_ptr<const Splitter> make_deepseek_splitter(Version version) {
  return std::make_unique<DeepseekSplitter>(version);
}
std::unique_ptr<const Splitter> make_number_splitter(Version version, int digits) {
  return std::make_unique<NumberSplitter>(version, digits);
}
std::unique_ptr<const Splitter> make_cjk_splitter() { return std::make_unique<CjkSplitter>(); }
std::unique_ptr<const Splitter> make_word_splitter() { return std::make_unique<WordSplitter>(); }

}  // namespace ferry
