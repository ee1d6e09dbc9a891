// `ferry prune` on runs of Megatron-LM: what it takes for good, and what it leaves alone.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/open_elsewhere.h"
#include "tests/tools/program.h"

namespace {

namespace fs = std::filesystem;
using ferry::test::Outcome;
using ferry::test::Program;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

const std::string kLegacy = std::string(FERRY_FIXTURES) + "/megatron/llama_legacy_tp2pp2";

struct Prune : Program {
  std::string iteration(int number) const {
    return path("run/iter_000000" + std::to_string(number));
  }

  // Copies of one iteration.
  void put(const std::string& from, std::vector<int> numbers) const {
    fs::create_directories(path("run"));
    for (const int number : numbers) {
      fs::copy(from, iteration(number), fs::copy_options::recursive);
    }
  }
  json prune(const std::string& options) const {
    const Outcome outcome = ferry("prune --json " + options + " " + path("run"));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.code == 0 ? json::parse(outcome.out) : json();
  }
  static std::string reason(const json& report, size_t at) {
    return report.at("iterations").at(at).at("reason").get<std::string>();
  }
  std::vector<int> left() const {
    std::vector<int> numbers;
    for (int number = 1; number < 10; ++number) {
      if (fs::exists(iteration(number))) numbers.push_back(number);
    }
    return numbers;
  }
};

TEST_F(Prune, OneThatLostItsOptimizerIsNotGood) {
  put(kLegacy + "/iter_0000005", {1, 2, 3});
  fs::remove(iteration(3) + "/mp_rank_01_001/distrib_optim.pt");
  const json report = prune("--keep-last 1");
  EXPECT_THAT(left(), ElementsAre(2, 3));
  EXPECT_EQ(reason(report, 1), "the last good one");
  EXPECT_THAT(reason(report, 2), HasSubstr("not good: The optimizer's state is left out"));
}

TEST_F(Prune, OneWhoseFilesAreNotThoseOfItsManifestIsNotGood) {
  ASSERT_EQ(ferry("reshard " + kLegacy + " " + path("one") + " --tp 1 --pp 1").code, 0);
  put(path("one/iter_0000005"), {1, 2, 3});
  std::ofstream(iteration(2) + "/metadata.json", std::ios::app) << " ";
  fs::remove(iteration(3) + "/ferry.manifest.json");
  EXPECT_EQ(reason(prune("--keep-last 1 --dry-run"), 2),
            "the last good one");  // none: no objection
  fs::remove_all(iteration(3));
  const json report = prune("--keep-last 1");
  EXPECT_THAT(reason(report, 1), HasSubstr("not good: metadata.json has "));
  EXPECT_THAT(left(), ElementsAre(1, 2));
}

TEST_F(Prune, VerifyReadsTheLastGoodOneBeforeAnythingGoes) {
  ASSERT_EQ(ferry("reshard " + kLegacy + " " + path("one") + " --tp 1 --pp 1").code, 0);
  put(path("one/iter_0000005"), {1, 2, 3});
  const std::string file = iteration(3) + "/__0_0.distcp";
  std::string content = read(file);
  content.at(content.size() / 2) = static_cast<char>(content[content.size() / 2] ^ 1);
  write(file, content);
  EXPECT_EQ(reason(prune("--keep-last 1 --dry-run"), 2), "the last good one");
  const json report = prune("--keep-last 1 --verify");
  EXPECT_THAT(reason(report, 2), HasSubstr("are damaged"));
  EXPECT_EQ(reason(report, 1), "the last good one");
  EXPECT_THAT(left(), ElementsAre(2, 3));
}

TEST_F(Prune, WhatAnotherProgramHasOpenStays) {
  put(kLegacy + "/iter_0000005", {1, 2, 3});
  const ferry::test::OpenElsewhere reader(iteration(1) + "/mp_rank_00_000/distrib_optim.pt");
  ASSERT_TRUE(reader.opened());
  const json report = prune("--keep-last 1");
  EXPECT_EQ(reason(report, 0),
            "in use: sleep (process " + reader.number() + ") has distrib_optim.pt open");
  EXPECT_THAT(left(), ElementsAre(1, 3));
}

// Were they removed, what stays would lead nowhere.
TEST_F(Prune, WhatLinksLeadToStays) {
  put(kLegacy + "/iter_0000005", {1, 2, 3, 4});
  fs::create_directory_symlink("iter_0000001", iteration(5));
  fs::create_directory_symlink(iteration(2), path("run/best"));
  const json report = prune("--keep-last 1");
  EXPECT_EQ(reason(report, 0), "iter_0000005 links to it");
  EXPECT_EQ(reason(report, 1), "best links to it");
  EXPECT_THAT(left(), ElementsAre(1, 2, 5));
}

TEST_F(Prune, VerifyAllChecksEveryIteration) {
  put(kLegacy + "/iter_0000005", {1, 2, 3});
  fs::remove_all(iteration(2) + "/mp_rank_01_001");
  fs::create_directory(iteration(4));
  write(path("run/latest_checkpointed_iteration.txt"), "3");
  const Outcome text = ferry("verify --all " + path("run"));
  EXPECT_EQ(text.code, 4);
  EXPECT_THAT(text.out, HasSubstr("3 iterations checked, 1 problem"));
  EXPECT_THAT(text.out, HasSubstr("iter_0000004 is unfinished"));
  const json report = json::parse(ferry("verify --json --all " + path("run")).out);
  EXPECT_EQ(report.at("problem_count"), 1);
  EXPECT_EQ(report.at("iterations").size(), 3u);
  EXPECT_EQ(ferry("verify --all " + iteration(1)).code, 2);
}

}  // namespace
