#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "ckpt/base/error.h"
#include "text/split/character_set.h"
#include "text/split/splitters.h"

namespace ferry {
namespace {

// Patterns of published tokenizers have a few hundred bytes; PCRE2 compiles at most 64 KiB.
constexpr size_t kMostBytes = 16 << 10, kMostBytesTranslated = 1 << 20;

// The contents of a class's brackets.
constexpr char kSpaces[] =
    R"(\t-\r\x20\x85\xa0\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr char kHexDigits[] = "0-9A-Fa-f";
// \w in Rust (Unicode Technical Standard 18, Annex C) and in Oniguruma, which excludes joiners and,
// outside of classes, includes fractions and superscripts of Latin-1.
constexpr char kRustWord[] = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d})";
constexpr char kOnigurumaWord[] = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})",
               kOnigurumaWordOutside[] = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\xb2\xb3\xb9\xbc-\xbe)";

struct PosixClass {
  std::string_view name;
  std::vector<std::string_view> properties;  // that Oniguruma's class consists of
  const char* rust;                          // ASCII only
};
const PosixClass kPosixClasses[] = {{"alpha", {"Alphabetic"}, "A-Za-z"},
                                    {"alnum", {"Alphabetic", "Nd"}, "0-9A-Za-z"},
                                    {"digit", {"Nd"}, "0-9"},
                                    {"lower", {"Lowercase"}, "a-z"},
                                    {"upper", {"Uppercase"}, "A-Z"},
                                    {"space", {"White_Space"}, R"(\t-\r\x20)"},
                                    {"punct", {"P", "S"}, R"(!-/:-@\[-`{-~)"},
                                    {"xdigit", {"ASCII_Hex_Digit"}, kHexDigits},
                                    {"word", {"Alphabetic", "M", "Nd", "Pc"}, "0-9A-Za-z_"}};

bool compiles(const std::string& pattern) {
  int code = 0;
  PCRE2_SIZE at = 0;
  pcre2_code* const compiled =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_UCP, &code, &at, nullptr);
  pcre2_code_free(compiled);
  return compiled != nullptr;
}

class PatternReader {
 public:
  PatternReader(std::string_view pattern, PatternSyntax syntax, const std::string& what)
      : pattern_(pattern), is_rust_(syntax == PatternSyntax::rust), what_(what) {}

  std::string translated() {
    if (pattern_.size() > kMostBytes) refuse_length(pattern_.size(), kMostBytes);
    while (at_ < pattern_.size()) {
      const size_t begin = result_.size();
      const char c = pattern_[at_];
      if (c == '\\') {
        result_ += escape();
        atom_ = begin;
      } else if (c == '[') {
        result_ += character_class().pattern();
        atom_ = begin;
      } else if (pattern_.substr(at_, 3) == "(?#") {
        pass_comment();
      } else if (c == '(') {
        groups_.push_back({begin, multi_line_});
        open_group();
      } else if (c == ')') {
        result_ += pattern_[at_++];
        close_group();
      } else if (c == '{') {
        braces();
      } else if ((c == '^' || c == '$') && !multi_line_) {
        ++at_;
        result_ += is_rust_ ? (c == '$' ? "\\z" : "\\A") : (c == '$' ? "(?m:$)" : "(?m:^)");
      } else {
        do result_ += pattern_[at_++];
        while (at_ < pattern_.size() && (static_cast<unsigned char>(pattern_[at_]) & 0xC0) == 0x80);
        if (c != '*' && c != '+' && c != '?') atom_ = begin;
      }
      check_length(result_.size());
    }
    return std::move(result_);
  }

 private:
  [[noreturn]] void refuse(std::string_view part) const {
    fail(ErrorKind::unsupported,
         "{}: the regular expression '{}' contains '{}', which is not supported", what_,
         pattern_.substr(0, 200), part.substr(0, 40));
  }
  [[noreturn]] void refuse_length(size_t bytes, size_t most) const {
    fail(ErrorKind::unsupported,
         "{}: the regular expression '{}...' has {} bytes; the maximum is {}", what_,
         pattern_.substr(0, 200), bytes, most);
  }
  void check_length(size_t translated) const {
    if (translated > kMostBytesTranslated) refuse_length(translated, kMostBytesTranslated);
  }
  bool is(size_t at, char c) const { return at < pattern_.size() && pattern_[at] == c; }

  void pass_comment() {
    const size_t end = pattern_.find(')', at_);
    if (end == std::string_view::npos) refuse("(?#");
    at_ = end + 1;
  }

  // After an opening parenthesis. Oniguruma's (?m) is (?s) elsewhere. (*WORD) is a verb of PCRE2.
  void open_group() {
    result_ += pattern_[at_++];
    if (is(at_, '*')) refuse("(*");
    if (!is(at_, '?')) return;
    result_ += pattern_[at_++];
    bool is_off = false;
    for (; at_ < pattern_.size() &&
           std::string_view("imsx-").find(pattern_[at_]) != std::string_view::npos;
         ++at_) {
      is_off = is_off || pattern_[at_] == '-';
      if (pattern_[at_] == 'x' && is_rust_ && !is_off) refuse("(?x");  // also in classes
      if (pattern_[at_] == 'm' && is_rust_) multi_line_ = !is_off;
      result_ += pattern_[at_] == 'm' && !is_rust_ ? 's' : pattern_[at_];
    }
    if (is(at_, ')'))
      groups_.back().multi_line = multi_line_;  // until the end of the enclosing group
  }

  void close_group() {
    if (groups_.empty()) return;
    atom_ = groups_.back().begin;
    multi_line_ = groups_.back().multi_line;
    groups_.pop_back();
  }

  // {,n} is {0,n}. In Oniguruma {,} is literal, and a + after braces, or a ? after a single number,
  // is a repetition; elsewhere they mean possessive and lazy.
  void braces() {
    size_t end = at_ + 1;
    while (end < pattern_.size() &&
           (pattern_[end] == ',' || (pattern_[end] >= '0' && pattern_[end] <= '9')))
      ++end;
    const std::string_view inside = pattern_.substr(at_ + 1, end - at_ - 1);
    const auto commas = std::ranges::count(inside, ',');
    if (!is(end, '}') || inside.empty() || commas > 1 || (!is_rust_ && inside == ",")) {
      atom_ = result_.size();
      result_ += "\\{";
      ++at_;
      return;
    }
    at_ = end + 1;
    result_ += std::string("{") + (inside[0] == ',' ? "0" : "") + std::string(inside) + "}";
    if (!is_rust_ && (is(at_, '+') || (is(at_, '?') && commas == 0))) {
      result_.insert(atom_, "(?:");
      result_ += ")";
    }
  }

  std::string newer(std::string_view property) {
    const auto known = newer_.find(property);
    if (known != newer_.end()) return known->second;
    return newer_.emplace(property, newer_characters(property)).first->second;
  }
  std::string property_items(std::string_view property) {
    return fmt::format("\\p{{{}}}", property) + newer(property);
  }

  std::string word(bool is_inside) {
    const char* const known = is_rust_    ? kRustWord
                              : is_inside ? kOnigurumaWord
                                          : kOnigurumaWordOutside;
    return known + newer("w");
  }

  // The set of a one-letter escape, if it is one: s, S, d, D, w, W, h, H.
  std::optional<CharacterSet> set_of(char letter, bool is_inside) {
    const char lower = static_cast<char>(letter | 0x20);
    CharacterSet set;
    if (lower == 's') set.items = kSpaces;
    if (lower == 'd') set.items = property_items("Nd");
    if (lower == 'w') set.items = word(is_inside);
    if (lower == 'h') set.items = kHexDigits;
    if (set.items.empty()) return std::nullopt;
    return letter == lower ? set : set.complement();
  }

  // \p{Han} means the script only; PCRE2 includes characters that it shares with others.
  CharacterSet property() {
    const bool is_not = pattern_[at_ + 1] == 'P';
    const size_t begin = at_ + 2;
    const size_t end = is(begin, '{') ? pattern_.find('}', begin) : begin;
    if (end >= pattern_.size() || (end == begin && !is_rust_)) refuse(pattern_.substr(at_));
    at_ = end + 1;
    std::string_view name = pattern_.substr(begin, end + 1 - begin);
    if (name.size() > 2) name = name.substr(1, name.size() - 2);
    const bool is_inverted = name.starts_with('^');
    if (is_inverted) name.remove_prefix(1);
    const std::string script = fmt::format("sc:{}", name);
    const bool is_script = name.size() > 1 && compiles(fmt::format("\\p{{{}}}", script));
    CharacterSet set{property_items(is_script ? script : name), {}};
    if (is_script) set.items += newer(name);
    return is_not != is_inverted ? set.complement() : set;
  }

  // Escapes that have the same meaning in PCRE2.
  bool is_known(char letter, bool is_inside) const {
    if (letter < 'A' || letter > 'z' || (letter > 'Z' && letter < 'a')) return true;
    if (std::string_view("aefnrt").find(letter) != std::string_view::npos) return true;
    if (is_inside) return letter == 'b';
    if (letter == 'k' || letter == 'g') return is(at_ + 2, '<') || is(at_ + 2, '\'');
    if (letter == 'N') return !is(at_ + 2, '{');
    return std::string_view("AGKRXZz").find(letter) != std::string_view::npos;
  }

  // An escaped character in PCRE2's notation.
  std::string character(bool is_inside) {
    const size_t begin = at_;
    if (at_ + 1 >= pattern_.size()) refuse("\\");
    const char letter = pattern_[at_ + 1];
    const bool has_value = letter == 'u' || letter == 'U' || letter == 'x' || letter == 'v';
    if (!has_value && !is_known(letter, is_inside)) refuse(pattern_.substr(begin, 2));
    at_ += 2;
    if (letter == 'v') return "\\x0b";
    if (has_value) {
      const bool braced = is(at_, '{');
      const size_t digits = letter == 'x' ? 2 : letter == 'u' ? 4 : 8;
      const size_t end = braced ? pattern_.find('}', at_) : at_ + digits;
      if (end > pattern_.size()) refuse(pattern_.substr(begin));
      const std::string_view number = pattern_.substr(at_ + braced, end - at_ - braced);
      at_ = end + braced;
      return fmt::format("\\x{{{}}}", number);
    }
    while (at_ < pattern_.size() && (static_cast<unsigned char>(pattern_[at_]) & 0xC0) == 0x80)
      ++at_;
    return std::string(pattern_.substr(begin, at_ - begin));
  }

  // Outside of classes.
  std::string escape() {
    if (at_ + 1 >= pattern_.size()) refuse("\\");
    const char letter = pattern_[at_ + 1];
    if (const auto set = set_of(letter, false)) {
      at_ += 2;
      return set->pattern();
    }
    if (letter == 'p' || letter == 'P') return property().pattern();
    if (letter == 'b' || letter == 'B') {
      at_ += 2;
      if (is(at_, '{')) refuse("\\b{");
      const std::string is_word = CharacterSet{word(false), {}}.pattern();
      return letter == 'b' ? fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", is_word)
                           : fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", is_word);
    }
    return character(false);
  }

  // From its opening bracket to after its closing one.
  CharacterSet character_class() {
    if (++depth_ > 20) refuse("[[[");
    const size_t begin = at_++;
    const bool is_not = is(at_, '^');
    at_ += is_not;
    CharacterSet whole = union_of_items(true);
    while (is(at_, '&') || is(at_, '-')) {
      const bool is_difference = is(at_, '-');
      at_ += 2;
      const CharacterSet next = union_of_items(false);
      whole = whole.intersection(is_difference ? next.complement() : next);
    }
    if (!is(at_, ']')) refuse(pattern_.substr(begin));
    ++at_;
    --depth_;
    return is_not ? whole.complement() : whole;
  }

  bool at_operator() const {
    return (is(at_, '&') && is(at_ + 1, '&')) || (is_rust_ && is(at_, '-') && is(at_ + 1, '-'));
  }

  // Up to the closing bracket or a set operator. The first character of a class is not a closing
  // bracket and, in Rust, not an operator.
  CharacterSet union_of_items(bool begins) {
    CharacterSet all;
    bool after_set = false;    // a minus here is literal, not a range
    bool after_minus = false;  // literal, too, if a set follows
    for (; begins && is_rust_ && is(at_, '-'); ++at_) all.items += "\\-";
    begins = begins && all.items.empty();
    for (; at_ < pattern_.size() && (begins || !is(at_, ']')); begins = false) {
      if (at_operator()) break;
      if (is_rust_ && is(at_, '~') && is(at_ + 1, '~')) refuse("~~");
      check_length(all.items.size());
      if (const auto set = item_set()) {
        if (after_minus) all.items.insert(all.items.size() - 1, "\\");
        all.add(*set);
        after_set = true;
        after_minus = false;
        continue;
      }
      after_minus = is(at_, '-') && !after_set;
      if (is(at_, '\\')) {
        all.items += character(true);
      } else {
        const char c = pattern_[at_++];
        if (c == '[' || c == '^' || c == ']' || (c == '-' && after_set)) all.items += '\\';
        all.items += c;
      }
      after_set = false;
    }
    return all;
  }

  // A set inside a class: \s, \p{L}, [:alpha:] or a class.
  std::optional<CharacterSet> item_set() {
    if (is(at_, '\\') && at_ + 1 < pattern_.size()) {
      const char letter = pattern_[at_ + 1];
      if (letter == 'p' || letter == 'P') return property();
      auto set = set_of(letter, true);
      if (set) at_ += 2;
      return set;
    }
    if (!is(at_, '[')) return std::nullopt;
    if (!is(at_ + 1, ':')) return character_class();
    const size_t end = pattern_.find(":]", at_);
    if (end == std::string_view::npos) return character_class();
    std::string_view name = pattern_.substr(at_ + 2, end - at_ - 2);
    const bool is_not = name.starts_with('^');
    if (is_not) name.remove_prefix(1);
    for (const PosixClass& known : kPosixClasses) {
      if (known.name != name) continue;
      CharacterSet set;
      if (is_rust_) set.items = known.rust;
      for (const std::string_view property : known.properties) {
        if (!is_rust_) set.items += property_items(property);
      }
      at_ = end + 2;
      return is_not ? set.complement() : set;
    }
    refuse(pattern_.substr(at_, end + 2 - at_));
  }

  // An open group: its start in the result, and the flags to restore after it.
  struct OpenGroup {
    size_t begin;
    bool multi_line;
  };

  std::string_view pattern_;
  bool is_rust_;
  const std::string& what_;
  size_t at_ = 0;
  std::string result_;
  size_t atom_ = 0;  // start of the last atom in the result, for quantifiers
  bool multi_line_ = false;
  std::vector<OpenGroup> groups_;
  std::map<std::string, std::string, std::less<>> newer_;  // by property
  int depth_ = 0;
};

}  // namespace

std::string pcre2_pattern(std::string_view pattern, PatternSyntax syntax, const std::string& what) {
  return PatternReader(pattern, syntax, what).translated();
}

}  // namespace ferry
