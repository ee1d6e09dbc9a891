#include <algorithm>
#include <array>
#include <utility>

#include "text/split/splitters.h"

namespace ferry {
namespace {

using unicode::Version;

// Concatenates texts.
template <size_t... kSizes>
constexpr auto joined(const char (&... texts)[kSizes]) {
  std::array<char, (kSizes + ...) - sizeof...(kSizes)> all{};
  char* to = all.data();
  ((to = std::copy_n(texts, kSizes - 1, to)), ...);
  return all;
}

// Parts of patterns.
constexpr char kContractions[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
constexpr char kLinesAndSpaces[] = R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kUpper[] = R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])";
constexpr char kLower[] = R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])";
constexpr char kBefore[] = R"([^\r\n\p{L}\p{N}]?)";
constexpr char kOthers[] = R"( ?[^\s\p{L}\p{N}]+[\r\n]*|)",
               kOthersAndSlashes[] = R"( ?[^\s\p{L}\p{N}]+[\r\n/]*|)";

constexpr auto kGpt2Pattern =
    joined(R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)");
// tiktoken's equivalent form.
constexpr auto kR50kPattern =
    joined(R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)");
constexpr auto kCl100kPattern =
    joined(R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+|)",
           R"( ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)");
constexpr auto kLlama3Pattern =
    joined(kContractions, "|", kBefore, R"(\p{L}+|\p{N}{1,3}|)", kOthers, kLinesAndSpaces);
constexpr auto kQwen2Pattern =
    joined(kContractions, "|", kBefore, R"(\p{L}+|\p{N}|)", kOthers, kLinesAndSpaces);
constexpr auto kO200kPattern =
    joined(kBefore, kUpper, "*", kLower, "+", kContractions, "?|", kBefore, kUpper, "+", kLower,
           "*", kContractions, R"(?|\p{N}{1,3}|)", kOthersAndSlashes, kLinesAndSpaces);
constexpr auto kTekkenPattern = joined(kBefore, kUpper, "*", kLower, "+|", kBefore, kUpper, "+",
                                       kLower, R"(*|\p{N}|)", kOthersAndSlashes, kLinesAndSpaces);
constexpr auto kDeepseekPattern =
    joined(R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|)",
           R"([^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)", kLinesAndSpaces);
constexpr auto kNumbers3Pattern = joined(R"(\p{N}{1,3})");
constexpr auto kNumberPattern = joined(R"(\p{N})");
constexpr auto kCjkPattern = joined("[一-龥぀-ゟ゠-ヿ]+");

template <size_t kSize>
constexpr std::string_view text_of(const std::array<char, kSize>& pattern) {
  return {pattern.data(), pattern.size()};
}

class LiteralSplitter final : public Splitter {
 public:
  explicit LiteralSplitter(std::string text) : text_(std::move(text)) {}
  Match find(std::string_view text, size_t from) const override {
    const size_t at = text.find(text_, from);
    if (at == std::string_view::npos) return {text.size(), text.size()};
    return {at, at + text_.size()};
  }

 private:
  std::string text_;
};

// Null if the pattern is not one of them.
std::unique_ptr<const Splitter> make_known_splitter(std::string_view pattern,
                                                    PatternSyntax syntax) {
  constexpr Version version = Version::v16;
  const auto is = [&](const auto& known) { return pattern == text_of(known); };
  if (is(kGpt2Pattern)) return make_gpt2_splitter(version);
  // Oniguruma's $ matches at the end of every line, and its {1,3}+ any number of times.
  if (syntax == PatternSyntax::rust && is(kR50kPattern)) return make_gpt2_splitter(version);
  if (syntax == PatternSyntax::rust && is(kCl100kPattern)) {
    return make_cl100k_splitter(version, {.end_is_whole = true});
  }
  if (is(kLlama3Pattern)) return make_cl100k_splitter(version, {});
  if (is(kQwen2Pattern)) return make_cl100k_splitter(version, {.digits = 1});
  if (is(kO200kPattern)) return make_o200k_splitter(version, {});
  if (is(kTekkenPattern)) {
    return make_o200k_splitter(version, {.digits = 1, .contractions = false});
  }
  if (is(kDeepseekPattern)) return make_deepseek_splitter(version);
  if (is(kNumbers3Pattern)) return make_number_splitter(version, 3);
  if (is(kNumberPattern)) return make_number_splitter(version, 1);
  if (is(kCjkPattern)) return make_cjk_splitter();
  return nullptr;
}

}  // namespace

std::unique_ptr<const Splitter> make_splitter(const std::string& pattern, PatternSyntax syntax,
                                              const std::string& what) {
  if (auto known = make_known_splitter(pattern, syntax)) return known;
  return make_regex_splitter(pcre2_pattern(pattern, syntax, what), what);
}

std::unique_ptr<const Splitter> make_literal_splitter(const std::string& text) {
  return std::make_unique<LiteralSplitter>(text);
}

std::string tiktoken_pattern(const std::string& name) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"gpt2", text_of(kR50kPattern)},          {"r50k", text_of(kR50kPattern)},
      {"r50k_base", text_of(kR50kPattern)},     {"p50k", text_of(kR50kPattern)},
      {"p50k_base", text_of(kR50kPattern)},     {"cl100k", text_of(kCl100kPattern)},
      {"cl100k_base", text_of(kCl100kPattern)}, {"o200k", text_of(kO200kPattern)},
      {"o200k_base", text_of(kO200kPattern)},   {"llama3", text_of(kLlama3Pattern)},
      {"qwen2", text_of(kQwen2Pattern)},        {"tekken", text_of(kTekkenPattern)}};
  for (const auto& [known, pattern] : kNames) {
    if (known == name) return std::string(pattern);
  }
  return name;
}

}  // namespace ferry
