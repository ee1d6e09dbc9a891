#include "tools/data/tokenize/json_fields.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <optional>

#include "ckpt/base/utf8.h"

namespace ferry::tool {
namespace {

constexpr int kMostKeysShown = 8;

constexpr uint64_t kOnes = 0x0101010101010101u, kHighs = 0x8080808080808080u;

// Nonzero where a byte of the word is a quote, a backslash or a control character.
uint64_t ends_of_plain_text(uint64_t word) {
  const auto zero_bytes = [](uint64_t value) { return (value - kOnes) & ~value & kHighs; };
  return zero_bytes(word ^ kOnes * '"') | zero_bytes(word ^ kOnes * '\\') |
         ((word - kOnes * 0x20) & ~word & kHighs);
}

std::optional<uint32_t> hex_value(char c) {
  if (c >= '0' && c <= '9') return static_cast<uint32_t>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<uint32_t>(c - 'a' + 10);
  if (c >= 'A' && c <= 'F') return static_cast<uint32_t>(c - 'A' + 10);
  return std::nullopt;
}

bool is_high_surrogate(uint32_t unit) { return unit >= 0xD800 && unit < 0xDC00; }
bool is_low_surrogate(uint32_t unit) { return unit >= 0xDC00 && unit < 0xE000; }

}  // namespace

class JsonFields::Reader {
 public:
  Reader(std::string_view line, const std::vector<std::string>& keys,
         std::vector<FieldTexts>& fields, std::string& unescaped)
      : line_(line), keys_(keys), fields_(fields), unescaped_(unescaped) {}

  std::string read() {
    try {
      read_line();
      return {};
    } catch (const Problem& problem) {
      return problem.text;
    }
  }

 private:
  struct Problem {
    std::string text;
  };
  struct String {
    std::string_view text;
    bool lone_surrogate = false;
  };

  [[noreturn]] void fail_here(std::string_view what) const {
    throw Problem{fmt::format("{} in column {}", what, at_ + 1)};
  }

  void read_line() {
    const size_t good = utf8_prefix(line_, false);
    if (good < line_.size()) {
      const bool is_utf16 = line_.starts_with("\xff\xfe") || line_.starts_with("\xfe\xff");
      throw Problem{fmt::format(
          "byte 0x{:02x} in column {} is not UTF-8{}", static_cast<uint8_t>(line_[good]), good + 1,
          is_utf16 ? ", but how UTF-16 begins, of which iconv -f UTF-16 -t UTF-8 makes it" : "")};
    }
    skip_space();
    if (at_ == line_.size()) fail_here("there is nothing but white space");
    if (peek() != '{') {
      throw Problem{fmt::format(
          "it is not an object, as {{\"text\": \"...\"}} is ({})",
          peek() == '[' ? "of an array, jq -c '.[]' makes a line an object"
                        : "of plain text, --input-format text makes each file a document, and "
                          "lines each line")};
    }
    read_object();
    skip_space();
    if (at_ < line_.size()) fail_here("something follows the object");
    for (size_t k = 0; k < keys_.size(); ++k) {
      if (!fields_[k].found) throw Problem{problem_of_key(keys_[k])};
    }
  }

  // The line is sound JSON: it is read once more for the names in it.
  std::string problem_of_key(const std::string& key) {
    std::string names;
    int left = kMostKeysShown;
    at_ = 0;
    skip_space();
    take('{');
    skip_space();
    while (peek() == '"' && left-- > 0) {
      names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", read_string(true).text);
      skip_space();
      take(':');
      skip_space();
      skip_value();
      skip_space();
      take(',');
      skip_space();
    }
    if (names.empty()) return fmt::format("it has no key \"{}\", and no other", key);
    return fmt::format("it has no key \"{}\", but {}{}; --json-keys names those to take", key,
                       names, peek() == '"' ? ", ..." : "");
  }

  char peek() const { return at_ < line_.size() ? line_[at_] : '\0'; }
  bool take(char c) {
    if (peek() != c || at_ == line_.size()) return false;
    ++at_;
    return true;
  }
  void skip_space() {
    while (at_ < line_.size() &&
           (line_[at_] == ' ' || line_[at_] == '\t' || line_[at_] == '\r' || line_[at_] == '\n')) {
      ++at_;
    }
  }

  void read_object() {
    take('{');
    skip_space();
    if (take('}')) return;
    while (true) {
      skip_space();
      if (peek() != '"') fail_here("a member's name in quotes is missing");
      const std::string_view name = read_string(true).text;
      skip_space();
      if (!take(':')) fail_here("a ':' is missing");
      skip_space();
      const size_t key = key_of(name);
      key < keys_.size() ? read_field(key) : skip_value();
      skip_space();
      if (take('}')) return;
      if (!take(',')) fail_here("a ',' or '}' is missing");
    }
  }

  size_t key_of(std::string_view name) const {
    size_t key = 0;
    while (key < keys_.size() && keys_[key] != name) ++key;
    return key;
  }

  void read_field(size_t key) {
    FieldTexts& field = fields_[key];
    field.found = true;
    field.texts.clear();
    field.is_list = peek() == '[';
    if (!field.is_list) return add_text(key);
    take('[');
    skip_space();
    if (take(']')) return;
    while (true) {
      skip_space();
      add_text(key);
      skip_space();
      if (take(']')) return;
      if (!take(',')) fail_here("a ',' or ']' is missing");
    }
  }

  void add_text(size_t key) {
    if (peek() != '"') {
      skip_value();  // reports broken syntax first
      throw Problem{fmt::format("\"{}\" is neither a string nor a list of strings", keys_[key])};
    }
    const String string = read_string(true);
    if (string.lone_surrogate) {
      throw Problem{fmt::format(
          "\"{}\" has half of a surrogate pair (\\ud800 to \\udfff), which no UTF-8 can express",
          keys_[key])};
    }
    fields_[key].texts.push_back(string.text);
  }

  // To the next quote, backslash or control character.
  void skip_plain_text() {
    uint64_t word;
    while (at_ + sizeof word <= line_.size()) {
      std::memcpy(&word, line_.data() + at_, sizeof word);
      if (ends_of_plain_text(word)) break;
      at_ += sizeof word;
    }
    while (at_ < line_.size()) {
      const auto c = static_cast<unsigned char>(line_[at_]);
      if (c == '"' || c == '\\' || c < 0x20) return;
      ++at_;
    }
  }

  // Returns its text if `keep`: a part of the line where nothing in it is escaped.
  String read_string(bool keep) {
    take('"');
    String string;
    const size_t begin = at_, begin_unescaped = unescaped_.size();
    bool escaped = false;
    while (true) {
      const size_t plain = at_;
      skip_plain_text();
      if (escaped && keep) unescaped_.append(line_, plain, at_ - plain);
      if (at_ == line_.size()) fail_here("a string does not end");
      if (line_[at_] == '"') break;
      if (line_[at_] != '\\') fail_here("a control character in a string is not escaped");
      if (!escaped && keep) unescaped_.append(line_, begin, at_ - begin);
      escaped = true;
      read_escape(string, keep);
    }
    string.text = escaped ? std::string_view(unescaped_).substr(begin_unescaped)
                          : line_.substr(begin, at_ - begin);
    ++at_;
    return string;
  }

  void read_escape(String& string, bool keep) {
    static constexpr std::string_view kLetters = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    ++at_;
    if (take('u')) {
      const char32_t code_point = read_code_point(string.lone_surrogate);
      if (keep) append_utf8(unescaped_, code_point);
      return;
    }
    const size_t letter = at_ < line_.size() ? kLetters.find(line_[at_]) : std::string_view::npos;
    if (letter == std::string_view::npos) fail_here("a backslash begins no escape");
    ++at_;
    if (keep) unescaped_ += kMeanings[letter];
  }

  char32_t read_code_point(bool& lone_surrogate) {
    const uint32_t unit = read_unit();
    if (is_high_surrogate(unit) && line_.substr(at_, 2) == "\\u") {
      const size_t before = at_;
      at_ += 2;
      const uint32_t next = read_unit();
      if (is_low_surrogate(next)) return 0x10000 + ((unit - 0xD800) << 10) + (next - 0xDC00);
      at_ = before;
    }
    lone_surrogate |= is_high_surrogate(unit) || is_low_surrogate(unit);
    return unit;
  }

  uint32_t read_unit() {
    uint32_t unit = 0;
    for (int i = 0; i < 4; ++i) {
      const std::optional<uint32_t> digit = hex_value(peek());
      if (!digit) fail_here("\\u is not followed by four hexadecimal digits");
      unit = unit << 4 | *digit;
      ++at_;
    }
    return unit;
  }

  // Skips any value, without recursion: a line may be nothing but brackets.
  void skip_value() {
    std::vector<char> open;
    do {
      skip_space();
      const char c = peek();
      if (c == '{' || c == '[') {
        ++at_;
        open.push_back(c);
        if (std::ssize(open) > kDeepestJson) {
          fail_here(fmt::format("objects and lists are nested more than {} deep", kDeepestJson));
        }
        if (!close(open)) {
          if (c == '{') skip_name();
          continue;
        }
      } else {
        skip_scalar(c);
      }
      while (!open.empty() && !next_member(open)) {
      }
    } while (!open.empty());
  }

  // Whether what was opened last ends here.
  bool close(std::vector<char>& open) {
    skip_space();
    if (!take(open.back() == '{' ? '}' : ']')) return false;
    open.pop_back();
    return true;
  }

  // True before a next value; false when what was opened last has ended.
  bool next_member(std::vector<char>& open) {
    const bool is_object = open.back() == '{';
    if (close(open)) return false;
    if (!take(',')) fail_here(is_object ? "a ',' or '}' is missing" : "a ',' or ']' is missing");
    if (is_object) skip_name();
    return true;
  }

  void skip_name() {
    skip_space();
    if (peek() != '"') fail_here("a member's name in quotes is missing");
    read_string(false);
    skip_space();
    if (!take(':')) fail_here("a ':' is missing");
  }

  void skip_scalar(char c) {
    if (c == '"') {
      read_string(false);
      return;
    }
    for (const std::string_view word : {"null", "true", "false", "NaN", "Infinity", "-Infinity"}) {
      if (!line_.substr(at_).starts_with(word)) continue;
      at_ += word.size();
      return;
    }
    skip_number();
  }

  void skip_number() {
    const size_t begin = at_;
    const auto digits = [&] {
      const size_t first = at_;
      while (peek() >= '0' && peek() <= '9') ++at_;
      return at_ - first;
    };
    take('-');
    if (!take('0') && digits() == 0) {
      at_ = begin;
      fail_here("a value is missing");
    }
    if (peek() == '.') {
      ++at_;
      if (digits() == 0) fail_here("a number has no digit after its point");
    }
    if (peek() == 'e' || peek() == 'E') {
      ++at_;
      if (!take('-')) take('+');
      if (digits() == 0) fail_here("a number has no digit in its exponent");
    }
  }

  std::string_view line_;
  const std::vector<std::string>& keys_;
  std::vector<FieldTexts>& fields_;
  std::string& unescaped_;
  size_t at_ = 0;
};

JsonFields::JsonFields(std::vector<std::string> keys)
    : keys_(std::move(keys)), fields_(keys_.size()) {}

std::string JsonFields::read(std::string_view line) {
  for (FieldTexts& field : fields_) field.found = false;
  unescaped_.clear();
  // What is unescaped is never longer than what stood there; views must not move.
  if (unescaped_.capacity() < line.size()) unescaped_.reserve(line.size());
  return Reader(line, keys_, fields_, unescaped_).read();
}

}  // namespace ferry::tool
