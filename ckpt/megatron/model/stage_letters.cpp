#include "ckpt/megatron/model/stage_letters.h"

#include <algorithm>
#include <cstdint>

#include "ckpt/base/utf8.h"

namespace ferry {
namespace {

constexpr size_t kMostLetters = size_t{1} << 18;  // of all stages, once repetitions are written out
constexpr std::string_view kLetters = "EtmL|";
constexpr std::string_view kGrammar =
    "one letter a layer (E embedding, t decoder, m multi-token prediction, L loss), | between "
    "stages, t*3 or (t|)*3 to repeat";

bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Parser {
 public:
  Parser(std::string_view text, ErrorKind kind) : text_(text), kind_(kind) {}

  StageLetters parse() const {
    std::string flat(text_);
    std::erase(flat, ',');
    flat = repeat(repeat(flat, true), false);
    StageLetters stages(1);
    for (size_t i = 0; i < flat.size(); ++i) {
      if (kLetters.find(flat[i]) == std::string_view::npos) refuse_at(flat, i);
      if (flat[i] == '|') {
        stages.emplace_back();
      } else {
        stages.back() += flat[i];
      }
    }
    return stages;
  }

 private:
  template <typename What>
  [[noreturn]] void refuse(const What& what) const {
    fail(kind_, "pipeline_model_parallel_layout \"{}\": {}: {}", to_utf8(text_.substr(0, 200)),
         what, kGrammar);
  }
  [[noreturn]] void refuse_at(const std::string& flat, size_t at) const {
    const std::string shown = to_utf8(std::string_view(flat).substr(at, 4));  // of any script
    refuse(fmt::format("'{}' cannot stand there", shown.substr(0, utf8_length(shown))));
  }
  static size_t utf8_length(const std::string& text) {
    size_t length = 1;
    while (length < text.size() && (text[length] & 0xC0) == 0x80) ++length;
    return length;
  }

  // Writes repetitions out: "(..)*n" where `groups` (they do not nest), else "c*n".
  std::string repeat(const std::string& from, bool groups) const {
    std::string to;
    for (size_t i = 0; i < from.size();) {
      const bool group = groups && from[i] == '(';
      const size_t close = group ? from.find(')', i) : i;
      if (close == std::string::npos) refuse("a ( without )");
      const std::string unit = group ? from.substr(i + 1, close - i - 1) : from.substr(i, 1);
      size_t after = close + 1;
      const bool times = after + 1 < from.size() && from[after] == '*' && is_digit(from[after + 1]);
      if (times && (group || !groups)) {
        const uint64_t count = number(from, ++after);
        if (to.size() + count * unit.size() > kMostLetters) {
          refuse(fmt::format("it repeats to more than {} letters", kMostLetters));
        }
        for (uint64_t n = 0; n < count; ++n) to += unit;
      } else {
        to += from.substr(i, after - i);
      }
      i = after;
    }
    return to;
  }

  // At `at`, which moves past it; bounded, and 0 where there is none.
  static uint64_t number(const std::string& from, size_t& at) {
    uint64_t number = 0;
    for (; at < from.size() && is_digit(from[at]); ++at) {
      number =
          std::min<uint64_t>(number * 10 + static_cast<uint64_t>(from[at] - '0'), kMostLetters + 1);
    }
    return number;
  }

  const std::string_view text_;
  const ErrorKind kind_;
};

}  // namespace

StageLetters parse_stage_letters(std::string_view text) {
  return Parser(text, ErrorKind::unsupported).parse();
}

StageLetters parse_stage_letters(std::string_view text, ErrorKind kind) {
  return Parser(text, kind).parse();
}

}  // namespace ferry
