// Ids that the peers' programs gave (tests/interop/text/make_tokenizer_fixtures.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "tests/support.h"
#include "text/tokenizer.h"

namespace ferry {
namespace {

std::string option_of(const nlohmann::json& golden, size_t index, bool is_file) {
  const nlohmann::json& options = golden.at("options");
  if (index >= options.size() || options[index] == "-") return "";
  const auto option = options[index].get<std::string>();
  return is_file ? test::fixture("tokenizers/" + option) : option;
}

class GoldenIds : public testing::TestWithParam<std::string> {
 protected:
  nlohmann::json golden_ =
      nlohmann::json::parse(std::ifstream(test::fixture("tokenizers/" + GetParam() + ".ids.json")));
  std::unique_ptr<const TextTokenizer> tokenizer_ =
      open_tokenizer(*posix_file_system(), {.type = option_of(golden_, 0, false),
                                            .model = option_of(golden_, 1, true),
                                            .vocab_file = option_of(golden_, 2, true),
                                            .merge_file = option_of(golden_, 3, true),
                                            .pattern = option_of(golden_, 4, false)});
};

TEST_P(GoldenIds, AreThePeers) {
  for (const auto& [text, expected] :
       golden_.at("cases").get<std::vector<std::pair<std::string, std::vector<int32_t>>>>()) {
    for (const char* from : {"the tokenizer", "its cache"}) {
      std::vector<int32_t> ids;
      tokenizer_->encode(text, ids);
      ASSERT_EQ(ids, expected) << text << " from " << from;
    }
  }
}

TEST_P(GoldenIds, AreBelowTheSizeOfTheVocabulary) {
  for (const nlohmann::json& sample : golden_.at("cases")) {
    for (const int32_t id : sample[1].get<std::vector<int32_t>>()) {
      ASSERT_LT(id, tokenizer_->vocab_size());
    }
  }
}

// What every program with GPT-2's published vocabulary gives. The fixture has a part of it: all
// that can come up in these texts.
TEST(Gpt2, GivesThePublishedIds) {
  const auto tokenizer = open_tokenizer(
      *posix_file_system(), {.type = "GPT2BPETokenizer",
                             .vocab_file = test::fixture("tokenizers/gpt2/encoder.json"),
                             .merge_file = test::fixture("tokenizers/gpt2/vocab.bpe")});
  const std::pair<std::string, std::vector<int32_t>> golden[] = {
      {"Hello world", {15496, 995}},
      {"  two  spaces\n\n\ttab's it'LL 12345 na\u00efve \u00dcn\u00ef \u65e5\u672c\u8a9e "
       "\U0001F642",
       {220,   734,   220, 9029,  628,   197, 8658, 338,   340, 6,     3069, 17031, 2231,
        41492, 49363, 77,  26884, 10545, 245, 98,   17312, 105, 45739, 252,  32485}},
      {"<|endoftext|>", {27, 91, 437, 1659, 5239, 91, 29}}};
  for (const auto& [text, expected] : golden) {
    std::vector<int32_t> ids;
    tokenizer->encode(text, ids);
    EXPECT_EQ(ids, expected) << text;
    EXPECT_EQ(tokenizer->decode(ids), text);
  }
  EXPECT_EQ(tokenizer->vocab_size(), 50257);
  EXPECT_EQ(tokenizer->end_of_document(), 50256);
}

std::vector<std::string> golden_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(test::fixture("tokenizers"))) {
    const std::string name = entry.path().filename();
    if (name.ends_with(".ids.json")) names.push_back(name.substr(0, name.size() - 9));
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Why a vocabulary of that text cannot be opened.
std::string problem_of_vocabulary(const std::string& text) {
  const std::string path = testing::TempDir() + "/bad.json";
  std::ofstream(path) << text;
  std::string problem;
  try {
    (void)open_tokenizer(*posix_file_system(),
                         {.type = "GPT2BPETokenizer",
                          .vocab_file = path,
                          .merge_file = test::fixture("tokenizers/gpt2/vocab.bpe")});
  } catch (const Error& error) {
    problem = error.what();
  }
  std::filesystem::remove(path);
  return problem;
}

TEST(Gpt2, AVocabularyWithoutTokensIsDamage) {
  EXPECT_THAT(problem_of_vocabulary("{}"), testing::HasSubstr("bad.json has no token"));
}

TEST(Gpt2, AVocabularyThatIsNoJsonIsReportedWithoutTheParsersName) {
  const std::string problem = problem_of_vocabulary("{\"a\": 0");
  EXPECT_THAT(problem, testing::HasSubstr("bad.json is not JSON: parse error at line 1"));
  EXPECT_THAT(problem, testing::Not(testing::HasSubstr("json.exception")));
}

INSTANTIATE_TEST_SUITE_P(Peers, GoldenIds, testing::ValuesIn(golden_names()),
                         [](const auto& instance) {
                           std::string name = instance.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace ferry
