#include <utility>

#include "text/split/known_splitters.h"
#include "text/split/regex_splitter.h"

namespace ferry {
namespace {

using unicode::Version;

#define FERRY_FOLDED_CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define FERRY_LINES_AND_SPACES R"(\s*[\r\n]+|\s+(?!\S)|\s+)"
#define FERRY_UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define FERRY_LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define FERRY_BEFORE R"([^\r\n\p{L}\p{N}]?)"

constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// tiktoken's form of it, which divides as it does.
constexpr std::string_view kR50kPattern =
    R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)";
constexpr std::string_view kCl100kPattern =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|)"
    R"(\s++$|\s*[\r\n]|\s+(?!\S)|\s)";
constexpr std::string_view kLlama3Pattern = FERRY_FOLDED_CONTRACTIONS
    "|" FERRY_BEFORE R"(\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)" FERRY_LINES_AND_SPACES;
constexpr std::string_view kQwen2Pattern = FERRY_FOLDED_CONTRACTIONS
    "|" FERRY_BEFORE R"(\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)" FERRY_LINES_AND_SPACES;
constexpr std::string_view kO200kPattern = FERRY_BEFORE FERRY_UPPER
    "*" FERRY_LOWER "+" FERRY_FOLDED_CONTRACTIONS "?|" FERRY_BEFORE FERRY_UPPER "+" FERRY_LOWER
    "*" FERRY_FOLDED_CONTRACTIONS
    R"(?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" FERRY_LINES_AND_SPACES;
constexpr std::string_view kTekkenPattern =
    FERRY_BEFORE FERRY_UPPER "*" FERRY_LOWER "+|" FERRY_BEFORE FERRY_UPPER "+" FERRY_LOWER
                             R"(*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" FERRY_LINES_AND_SPACES;
constexpr std::string_view kDeepseekPattern =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*|)" FERRY_LINES_AND_SPACES;
constexpr std::string_view kNumbers3Pattern = R"(\p{N}{1,3})", kNumberPattern = R"(\p{N})";
constexpr std::string_view kCjkPattern = "[一-龥぀-ゟ゠-ヿ]+";

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

}  // namespace

std::unique_ptr<const Splitter> make_known_splitter(std::string_view pattern, Version version) {
  if (pattern == kGpt2Pattern || pattern == kR50kPattern) return make_gpt2_splitter(version);
  if (pattern == kCl100kPattern) return make_cl100k_splitter(version, {.end_is_whole = true});
  if (pattern == kLlama3Pattern) return make_cl100k_splitter(version, {});
  if (pattern == kQwen2Pattern) return make_cl100k_splitter(version, {.digits = 1});
  if (pattern == kO200kPattern) return make_o200k_splitter(version, {});
  if (pattern == kTekkenPattern)
    return make_o200k_splitter(version, {.digits = 1, .contractions = false});
  if (pattern == kDeepseekPattern) return make_deepseek_splitter(version);
  if (pattern == kNumbers3Pattern) return make_number_splitter(version, 3);
  if (pattern == kNumberPattern) return make_number_splitter(version, 1);
  if (pattern == kCjkPattern) return make_cjk_splitter();
  return nullptr;
}

std::unique_ptr<const Splitter> make_splitter(const std::string& pattern, const std::string& what,
                                              Version version) {
  if (auto known = make_known_splitter(pattern, version)) return known;
  return make_regex_splitter(pattern, what);
}

std::unique_ptr<const Splitter> make_literal_splitter(const std::string& text) {
  return std::make_unique<LiteralSplitter>(text);
}

std::string tiktoken_pattern(const std::string& name) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"gpt2", kR50kPattern},          {"r50k", kR50kPattern},      {"r50k_base", kR50kPattern},
      {"p50k", kR50kPattern},          {"p50k_base", kR50kPattern}, {"cl100k", kCl100kPattern},
      {"cl100k_base", kCl100kPattern}, {"o200k", kO200kPattern},    {"o200k_base", kO200kPattern},
      {"llama3", kLlama3Pattern},      {"qwen2", kQwen2Pattern},    {"tekken", kTekkenPattern}};
  for (const auto& [known, pattern] : kNames) {
    if (known == name) return std::string(pattern);
  }
  return name;
}

}  // namespace ferry
