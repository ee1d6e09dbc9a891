// Ids that the peers' programs gave (tests/interop/make_tokenizer_fixtures.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
    std::vector<int32_t> ids;
    tokenizer_->encode(text, ids);
    ASSERT_EQ(ids, expected) << text;
  }
}

TEST_P(GoldenIds, AreBelowTheSizeOfTheVocabulary) {
  for (const nlohmann::json& sample : golden_.at("cases")) {
    for (const int32_t id : sample[1].get<std::vector<int32_t>>()) {
      ASSERT_LT(id, tokenizer_->vocab_size());
    }
  }
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

INSTANTIATE_TEST_SUITE_P(Peers, GoldenIds, testing::ValuesIn(golden_names()),
                         [](const auto& instance) {
                           std::string name = instance.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace ferry
