// Presets give Megatron-LM the arguments that the launch scripts they stand for give it.
// tests/fixtures/launch/*.words are what those scripts hand to pretrain_gpt.py, with programs of
// Slurm and Python replaced by ones that print: their folders are called /experiment, /cache,
// /data.
#include <set>

#include "tests/tools/launch/launch_files.h"

namespace {

using namespace ferry::test;

using Arguments = std::map<std::string, std::string>;

// Numbers are the same whatever their spelling.
std::string value_of(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  const bool is_number = !text.empty() && *end == '\0';
  return is_number ? std::to_string(number * 1e9) : text;
}

Arguments of_fixture(const std::string& name) {
  Arguments arguments;
  for (const std::string& line :
       lines_of(Program::read(std::string(FERRY_FIXTURES) + "/launch/" + name + ".words"))) {
    const size_t blank = line.find(' ');
    arguments[line.substr(0, blank)] =
        blank == std::string::npos ? "" : value_of(line.substr(blank + 1));
  }
  return arguments;
}

Arguments of_words(const std::string& text) {
  Arguments arguments;
  std::string name;
  for (const std::string& word : lines_of(text)) {
    if (word.starts_with("--")) {
      name = word;
      arguments[name] = "";
    } else {
      arguments[name] = value_of(word);
    }
  }
  return arguments;
}

struct Presets : Launching, testing::WithParamInterface<const char*> {};

TEST_P(Presets, GiveTheArgumentsOfTheScriptsTheyStandFor) {
  const std::string name = GetParam();
  const Arguments expected = of_fixture(name);
  ASSERT_GT(expected.size(), 20U);
  std::string line = "launch slurm --print-words --preset " + name +
                     " --set folder=/experiment --set arguments.data-path=/data/a";
  if (expected.count("--data-cache-path")) line += " --set arguments.data-cache-path=/cache";
  const Outcome words = ferry(line);
  ASSERT_EQ(words.code, 0) << words.err;
  EXPECT_EQ(of_words(words.out), expected);
}

INSTANTIATE_TEST_SUITE_P(Launch, Presets,
                         testing::Values("swiss-ai-8b", "swiss-ai-70b", "aws-gpt", "aws-llama2-7b",
                                         "aws-llama2-13b", "aws-llama2-70b"));

struct PresetList : Launching {};

TEST_F(PresetList, NamesAllAndPrintsOne) {
  const Outcome all = ferry("launch presets");
  ASSERT_EQ(all.code, 0);
  EXPECT_THAT(all.out, testing::HasSubstr("swiss-ai-8b"));
  EXPECT_THAT(all.out, testing::HasSubstr("one-machine-gpus"));
  const Outcome one = ferry("launch presets aws-gpt");
  EXPECT_EQ(one.out, Program::read(std::string(FERRY_FIXTURES) +
                                   "/../../tools/launch/presets/aws-gpt.yaml"));
  const Outcome none = ferry("launch presets aws");
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.err, testing::HasSubstr("there is no preset 'aws'"));
}

// Every preset can be launched wherever it can be.
TEST_F(PresetList, AreCheckedAndWritten) {
  for (const std::string& line : lines_of(ferry("launch presets").out)) {
    const std::string name = line.substr(0, line.find(' '));
    const Outcome slurm =
        ferry("launch slurm --print --preset " + name + " --set folder=/experiment");
    EXPECT_EQ(slurm.code, 0) << name << slurm.err;
    EXPECT_THAT(slurm.out, testing::HasSubstr("#SBATCH --job-name=")) << name;
  }
}

}  // namespace
