#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/split/pcre2_pattern.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <optional>
#include <utility>
#include <vector>

#include "ckpt/base/error.h"
#include "text/split/newer_characters.h"

namespace ferry {
namespace {

// What stands between the brackets of a class.
constexpr char kSpaces[] =
    R"(\t-\r\x20\x85\xa0\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr char kHexDigits[] = "0-9A-Fa-f";
// Rust's (Unicode Technical Standard 18, Annex C), and Oniguruma's, to which joiners are no words,
// and outside of classes fractions and powers of Latin-1 are.
constexpr char kRustWord[] = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d})";
constexpr char kOnigurumaWord[] = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})",
               kOnigurumaWordOutside[] = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\xb2\xb3\xb9\xbc-\xbe)";

struct PosixClass {
  std::string_view name;
  std::vector<std::string_view> properties;  // which Oniguruma's are made of
  const char* rust;                          // of ASCII alone
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

std::string property_items(std::string_view property) {
  return fmt::format("\\p{{{}}}", property) + newer_characters(property);
}

// One character, as a class's items and as patterns of one character each, either of which may be
// empty.
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
    std::vector<size_t> groups;  // where those that are open begin in the result
    while (at_ < pattern_.size()) {
      const size_t begin = result_.size();
      const char c = pattern_[at_];
      if (c == '\\') {
        result_ += escape();
        atom_ = begin;
      } else if (c == '[') {
        result_ += character_class().pattern();
        atom_ = begin;
      } else if (c == '(') {
        groups.push_back(begin);
        open_group();
      } else if (c == ')') {
        result_ += pattern_[at_++];
        if (!groups.empty()) atom_ = groups.back(), groups.pop_back();
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
    }
    return std::move(result_);
  }

 private:
  [[noreturn]] void refuse(std::string_view part) const {
    fail(ErrorKind::unsupported, "{}: the regular expression '{}' has '{}', which is not known",
         what_, pattern_.substr(0, 200), part);
  }
  bool is(size_t at, char c) const { return at < pattern_.size() && pattern_[at] == c; }

  // Behind an opening bracket. (?m) is Oniguruma's for what others call (?s).
  void open_group() {
    result_ += pattern_[at_++];
    if (!is(at_, '?')) return;
    result_ += pattern_[at_++];
    bool is_off = false;
    for (; at_ < pattern_.size() &&
           std::string_view("imsx-").find(pattern_[at_]) != std::string_view::npos;
         ++at_) {
      is_off = is_off || pattern_[at_] == '-';
      if (pattern_[at_] == 'm' && is_rust_ && !is_off) multi_line_ = true;
      result_ += pattern_[at_] == 'm' && !is_rust_ ? 's' : pattern_[at_];
    }
  }

  // {,n} is {0,n}. A + behind braces repeats in Oniguruma, and is possessive elsewhere.
  void braces() {
    size_t end = at_ + 1;
    while (end < pattern_.size() &&
           (pattern_[end] == ',' || (pattern_[end] >= '0' && pattern_[end] <= '9')))
      ++end;
    if (!is(end, '}') || end == at_ + 1) {
      atom_ = result_.size();
      result_ += pattern_[at_++];
      return;
    }
    const std::string_view inside = pattern_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    result_ += std::string("{") + (inside[0] == ',' ? "0" : "") + std::string(inside) + "}";
    if (!is_rust_ && is(at_, '+')) {
      result_.insert(atom_, "(?:");
      result_ += ")";
    }
  }

  std::string word(bool is_inside) const {
    const char* const known = is_rust_    ? kRustWord
                              : is_inside ? kOnigurumaWord
                                          : kOnigurumaWordOutside;
    return known + newer_characters("w");
  }

  // The set that an escape of one letter stands for, if it does: s, S, d, D, w, W, h, H.
  std::optional<CharacterSet> set_of(char letter, bool is_inside) const {
    const char lower = static_cast<char>(letter | 0x20);
    CharacterSet set;
    if (lower == 's') set.items = kSpaces;
    if (lower == 'd') set.items = property_items("Nd");
    if (lower == 'w') set.items = word(is_inside);
    if (lower == 'h') set.items = kHexDigits;
    if (set.items.empty()) return std::nullopt;
    return letter == lower ? set : set.complement();
  }

  // \p{Han} is a script here; to PCRE2 also what the script shares with others.
  CharacterSet property() {
    const bool is_not = pattern_[at_ + 1] == 'P';
    const size_t begin = at_ + 2;
    const size_t end = is(begin, '{') ? pattern_.find('}', begin) : begin;
    if (end >= pattern_.size()) refuse(pattern_.substr(at_));
    at_ = end + 1;
    std::string_view name = pattern_.substr(begin, end + 1 - begin);
    if (name.size() > 2) name = name.substr(1, name.size() - 2);
    const bool is_inverted = name.starts_with('^');
    if (is_inverted) name.remove_prefix(1);
    const std::string script = fmt::format("sc:{}", name);
    const bool is_script = name.size() > 2 && compiles(fmt::format("\\p{{{}}}", script));
    CharacterSet set{property_items(is_script ? script : name), {}};
    if (is_script) set.items += newer_characters(name);
    return is_not != is_inverted ? set.complement() : set;
  }

  // A character that is written with a backslash, as PCRE2 writes it.
  std::string character() {
    const size_t begin = at_;
    const char letter = pattern_[at_ + 1];
    at_ += 2;
    if (letter == 'u' || letter == 'U' || letter == 'x') {
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

  // Outside of a class.
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
      const std::string is_word = CharacterSet{word(false), {}}.pattern();
      return letter == 'b' ? fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", is_word)
                           : fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", is_word);
    }
    return character();
  }

  // From its opening bracket to behind its closing one.
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

  // To the closing bracket or an operator between two of them. What a class begins with is no
  // closing bracket.
  CharacterSet union_of_items(bool begins) {
    CharacterSet all;
    bool behind_set = false;  // where a minus is itself, not a range's
    for (; at_ < pattern_.size() && (begins || !is(at_, ']')); begins = false) {
      if (at_operator()) break;
      if (is_rust_ && is(at_, '~') && is(at_ + 1, '~')) refuse("~~");
      if (const auto set = item_set()) {
        all.add(*set);
        behind_set = true;
        continue;
      }
      if (is(at_, '\\')) {
        all.items += character();
      } else {
        const char c = pattern_[at_++];
        if (c == '[' || c == '^' || c == ']' || (c == '-' && behind_set)) all.items += '\\';
        all.items += c;
      }
      behind_set = false;
    }
    return all;
  }

  // A set that stands in a class: \s, \p{L}, [:alpha:] or a class.
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
  std::string_view pattern_;
  bool is_rust_;
  const std::string& what_;
  size_t at_ = 0;
  std::string result_;
  size_t atom_ = 0;  // where what a quantifier repeats begins in the result
  bool multi_line_ = false;
  int depth_ = 0;
};

}  // namespace

std::string pcre2_pattern(std::string_view pattern, PatternSyntax syntax, const std::string& what) {
  return PatternReader(pattern, syntax, what).translated();
}

}  // namespace ferry
