// ferry train as a job meets it: logs that cannot grow, and dry runs.
#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/tools/program.h"

namespace {

namespace fs = std::filesystem;
using ferry::test::Outcome;
using ferry::test::Program;
using testing::HasSubstr;
using testing::Not;

const std::string kTrain =
    "train --device cpu --tokenizer-type NullTokenizer --vocab-size 100 --num-layers 1 "
    "--hidden-size 32 --num-attention-heads 2 --seq-length 16 --max-position-embeddings 16 "
    "--micro-batch-size 1 --global-batch-size 1 --lr 1e-3 --train-iters 4 --eval-iters 0 "
    "--log-interval 1 ";

TEST_F(Program, ARunWhoseLogCannotGrowGoesOn) {
  const std::string run = kTrain + "--mock-data --save-interval 4 --save " + path("run");
  const Outcome outcome = ferry(run + " >/dev/full");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("No space left on device: the run continues without its log"));
  EXPECT_THAT(outcome.err, Not(testing::ContainsRegex("its log.*\n.*its log")));  // once
  EXPECT_TRUE(fs::exists(folder / "run/iter_0000004/metadata.json"));
  fs::remove_all(folder / "run");
  // A reader that ends at once.
  const std::string piped =
      std::string(FERRY_PROGRAM) + " " + run + " 2>" + path("err") + " | true";
  EXPECT_EQ(std::system(piped.c_str()), 0);
  EXPECT_THAT(read(path("err")), HasSubstr("Broken pipe: the run continues without its log"));
  EXPECT_TRUE(fs::exists(folder / "run/iter_0000004/metadata.json"));
}

TEST_F(Program, ADryRunOfTrainingRefusesWhatTheRunWould) {
  const std::string saved = path("run"), corpus = FERRY_FIXTURES "/data/corpus_a_text_document";
  ASSERT_EQ(ferry(kTrain + "--mock-data --save-interval 4 --save " + saved).code, 0);
  const auto refused = [&](const std::string& more, int code, const std::string& why) {
    for (const char* dry : {" --dry-run", ""}) {
      const Outcome outcome = ferry(kTrain + more + dry);
      EXPECT_EQ(outcome.code, code) << more << dry << outcome.err;
      EXPECT_THAT(outcome.err, HasSubstr(why)) << more << dry;
    }
  };
  EXPECT_EQ(ferry(kTrain + "--mock-data --dry-run --load " + saved).code, 0);
  refused("--mock-data --load " + saved + " --hidden-size 64", 6,
          "hidden_size is 32 in the checkpoint");
  refused("--mock-data --load " + saved + " --ckpt-step 7", 3, "--ckpt-step asks for 7");
  refused("--data-path " + path("none"), 3, "none.idx does not exist");
  refused("--data-path " + corpus + ".bin", 3, "without the extensions; give " + corpus);
  refused("--data-path " FERRY_FIXTURES "/data", 3, "ferry data config " FERRY_FIXTURES "/data");
  refused("--split 0,1,0 --data-cache-path " + path("cache") + " --data-path " + corpus, 2,
          "there is nothing to train on");
  EXPECT_EQ(ferry(kTrain + "--dry-run --data-path " + corpus).code, 0);
  write(path("file"), "");
  const std::string save = "--mock-data --save-interval 4 --save ";
  refused(save + path("file"), 2, "is a file; give a run folder");
  refused(save + saved + "/iter_0000004", 2, "is the folder of an iteration");
  refused("--mock-data --metrics-json " + saved, 2, "is a folder; give the path of a file");
}

// They stand on standard error, after the list of arguments, and once more when the start is over.
TEST_F(Program, WarningsOfTheStartComeTwiceOnStandardError) {
  const std::string warning = "WARNING: there is no checkpoint in --load " + path("none");
  const Outcome apart = ferry(kTrain + "--mock-data --load " + path("none"));
  ASSERT_EQ(apart.code, 0) << apart.err;
  EXPECT_THAT(apart.out, Not(HasSubstr("WARNING")));
  EXPECT_NE(apart.err.find(warning), apart.err.rfind(warning));
  EXPECT_THAT(ferry(kTrain + "--mock-data --dry-run --load " + path("none")).err,
              HasSubstr(warning));
  const std::string command = std::string(FERRY_PROGRAM) + " " + kTrain + "--mock-data --load " +
                              path("none") + " >" + path("both") + " 2>&1";
  ASSERT_EQ(std::system(command.c_str()), 0);
  const std::string both = read(path("both"));
  EXPECT_LT(both.find("end of arguments"), both.find(warning));
  EXPECT_LT(both.find("memory per rank"), both.rfind(warning));
  EXPECT_LT(both.rfind(warning), both.find("[before the start of training step]"));
}

TEST_F(Program, SavesThatGoNowhereAreWarnedOf) {
  const std::string warning = "WARNING: --save-interval without --save: nothing will be saved";
  EXPECT_THAT(ferry(kTrain + "--mock-data --save-interval 2").err, HasSubstr(warning));
  EXPECT_THAT(ferry(kTrain + "--mock-data --save-interval 2 --dry-run").err, HasSubstr(warning));
  EXPECT_THAT(ferry(kTrain + "--mock-data").err, Not(HasSubstr("WARNING")));
}

TEST_F(Program, ADryRunSaysThatExpertsStayInBf16) {
  const std::string experts =
      kTrain + "--mock-data --bf16 --fp8-format hybrid --num-experts 2 --dry-run ";
  const std::string note = "--fp8-format: routed experts run in bf16: an expert is 24 wide";
  EXPECT_THAT(ferry(experts + "--moe-ffn-hidden-size 24").err, HasSubstr(note));
  EXPECT_THAT(ferry(experts + "--moe-ffn-hidden-size 32").err, Not(HasSubstr("in bf16")));
}

TEST_F(Program, APartOfALaunchersEnvironmentIsRefused) {
  for (const char* rank : {"0", "1"}) {
    const std::string command = "env RANK=" + std::string(rank) + " WORLD_SIZE=2 " + FERRY_PROGRAM +
                                " " + kTrain + "--mock-data >" + path("out") + " 2>" + path("err");
    EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 2);
    EXPECT_THAT(read(path("err")), HasSubstr(", WORLD_SIZE=2, but not MASTER_ADDR, MASTER_PORT"));
    EXPECT_EQ(read(path("out")), "");
  }
}

}  // namespace
