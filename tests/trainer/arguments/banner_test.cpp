#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

#include "convert/arguments/known_arguments.h"
#include "tests/trainer/arguments/runs.h"
#include "trainer/arguments/argument_row.h"
#include "trainer/arguments/namespace.h"

namespace ferry::test {
namespace {

// The lines from the banner's first to its last.
std::string banner_of(const std::string& name) {
  std::ifstream file(fixture("megatron_logs/" + name + ".log"));
  std::string banner, line;
  while (std::getline(file, line)) {
    banner += line + "\n";
    if (line.find("end of arguments") != std::string::npos) break;
  }
  return banner;
}

Launch mpirun(int64_t world_size) {
  Launch launch;
  launch.launcher = "mpirun";
  launch.world_size = world_size;
  return launch;
}

// Every one of the 846 values that Megatron-LM printed for the same command line.
TEST(ArgumentsBanner, IsMegatronsLlama) {
  const auto run = completed(llama_words(), mpirun(4));
  EXPECT_EQ(arguments_banner(run.arguments), banner_of("llama_tp2pp2_full"));
}

TEST(ArgumentsBanner, IsMegatronsGpt2) {
  const auto run = completed(gpt2_words(), mpirun(2));
  EXPECT_EQ(arguments_banner(run.arguments), banner_of("gpt2_tp2"));
}

TEST(ArgumentsBanner, IsMegatronsDeepSeek) {
  const auto run = completed(deepseek_words(), mpirun(2));
  EXPECT_EQ(arguments_banner(run.arguments), banner_of("deepseek_ep2"));
}

TEST(ArgumentsBanner, ListsOurOwnWhereTheyAreGiven) {
  const auto run = completed(gpt2_words() + "--trigger-path triggers --keep-last 3");
  const std::string banner = arguments_banner(run.arguments);
  EXPECT_THAT(banner,
              testing::HasSubstr("  trigger_path .................................... triggers\n"));
  EXPECT_THAT(banner,
              testing::HasSubstr("  keep_last ....................................... 3\n"));
  EXPECT_THAT(banner, testing::Not(testing::HasSubstr("save_trigger")));
}

TEST(ArgumentTable, HasEveryFlagOnceAndEveryDefaultOfItsKind) {
  for (const ArgumentRow& row : argument_rows()) {
    SCOPED_TRACE(row.name());
    EXPECT_FALSE(row.name().empty());
    std::string_view flags = row.flags;
    while (!flags.empty()) {
      const std::string_view flag = flags.substr(0, flags.find(' '));
      EXPECT_EQ(find_flag(flag), &row) << flag;
      EXPECT_TRUE(flag.starts_with("--"));
      flags.remove_prefix(std::min(flags.size(), flag.size() + 1));
    }
    EXPECT_NE(find_argument(row.name()), nullptr);
    EXPECT_TRUE(is_known_argument(row.name()));
    const ArgumentValue initial = parse_initial(row.kind, row.initial);
    if (row.kind != ArgumentKind::signal) {  // shown as its number
      EXPECT_EQ(python_text(row.kind, initial), row.initial);
    }
    EXPECT_TRUE(is_default(default_arguments(), row));
  }
  EXPECT_GT(argument_rows().size(), 850u);
}

}  // namespace
}  // namespace ferry::test
