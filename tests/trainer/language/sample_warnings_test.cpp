// What runs say that go on with other samples than those that the run before would have taken.
#include "ckpt/store/run_folder.h"
#include "tests/trainer/language/runs.h"
#include "trainer/data/open_datasets.h"
#include "trainer/language/source.h"

namespace ferry::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// A run of ours that stands at iteration 3, after 24 samples.
class SampleWarnings : public testing::Test {
 protected:
  SampleWarnings() {
    run_of("--load " + run_fixture("f32_qwen3") + " --finetune --save " + scratch_.path("run") +
           common_words(scratch_) + "--eval-iters 0 --save-interval 3 --exit-interval 3");
  }

  // Warnings of a dry run, which are those of a run.
  std::vector<std::string> warnings(const std::string& more, const std::string& load = "") const {
    const std::string words = "--load " + (load.empty() ? scratch_.path("run") : load) + " " +
                              common_words(scratch_) + "--eval-iters 0 " + more;
    const auto files = posix_file_system();
    return check_inputs(files, arguments_of(files, words));
  }
  std::string corpus() const {
    return std::string(FERRY_FIXTURES) + "/data/corpus_a_text_document";
  }
  // The corpus under another name.
  std::string copy_of_corpus(const std::string& name) const {
    for (const char* end : {".bin", ".idx"}) {
      fs::copy_file(corpus() + end, scratch_.path(name) + end);
    }
    return scratch_.path(name);
  }

  const Scratch scratch_;
};

TEST_F(SampleWarnings, AreNotOfTheSameSamples) {
  EXPECT_THAT(warnings(""), IsEmpty());
  EXPECT_THAT(warnings("--split 990,10,0"), IsEmpty());
  EXPECT_THAT(warnings("--data-path " + copy_of_corpus("copy")), IsEmpty());
  EXPECT_THAT(warnings("--micro-batch-size 4 --data-parallel-size 2"), IsEmpty());
  EXPECT_THAT(warnings("--global-batch-size 4 --override-opt-param-scheduler"), IsEmpty());
  EXPECT_THAT(warnings("--train-iters 6"), IsEmpty());
  EXPECT_THAT(warnings("--data-path 2 " + corpus(), ""), IsEmpty());
  // What begins anew.
  EXPECT_THAT(warnings("--finetune --seed 12 --seq-length 32"), IsEmpty());
  EXPECT_THAT(warnings("--seed 12 --phase-transition-iterations 3"), IsEmpty());
  EXPECT_THAT(warnings("--seed 12 --skip-train"), IsEmpty());
}

TEST_F(SampleWarnings, NameWhatChangesTheOrder) {
  const auto one = [&](const std::string& more, const std::string& reason) {
    EXPECT_THAT(warnings(more), ElementsAre(AllOf(HasSubstr("other samples: " + reason + ". This "),
                                                  HasSubstr("after the first 24 samples"),
                                                  HasSubstr("were seen before, and about"))))
        << more;
  };
  one("--seed 12", "--seed 11 (now 12)");
  one("--seq-length 32", "--seq-length 64 (now 32)");
  one("--split 80,20,0", "--split 99,1,0 (now 80,20,0)");
  one("--seed 12 --split 80,20,0 --log-interval 5",
      "--split 99,1,0 (now 80,20,0), --seed 11 (now 12)");
  const std::string cyclic = "--dataloader-type cyclic --train-iters 500 ";
  run_of("--load " + run_fixture("f32_qwen3") + " --finetune --save " + scratch_.path("cyclic") +
         common_words(scratch_) + cyclic + "--eval-iters 0 --save-interval 3 --exit-interval 3");
  EXPECT_THAT(warnings(cyclic, scratch_.path("cyclic")), IsEmpty());
  EXPECT_THAT(warnings(cyclic + "--no-data-sharding", scratch_.path("cyclic")),
              ElementsAre(HasSubstr("other samples: data_sharding True (now False). This")));
  one("--dataloader-type cyclic", "--dataloader-type single (now cyclic)");
  // More iterations that take more epochs, which are shuffled together.
  one("--train-iters 500", "--train-iters 30 (now 500)");
  const std::string b = std::string(FERRY_FIXTURES) + "/data/corpus_b_text_document";
  one("--data-path " + b, "--data-path " + corpus() + " (now " + b + ")");
}

// None of other data was seen; of the same data in other proportions, as much as each has given.
TEST_F(SampleWarnings, CountWhatIsSeenAgain) {
  const std::string b = std::string(FERRY_FIXTURES) + "/data/corpus_b_text_document";
  EXPECT_THAT(warnings("--data-path " + b),
              ElementsAre(HasSubstr("of the 216 samples that follow about 0 were seen before, and "
                                    "about 24 unseen ones are skipped")));
  EXPECT_THAT(warnings("--override-ckpt-iteration 2"),
              ElementsAre(AllOf(HasSubstr("--override-ckpt-iteration 2 (it consumed 24 samples)"),
                                HasSubstr("after the first 16 samples"),
                                HasSubstr("about 8 were seen before, and about 0 unseen"))));
  EXPECT_THAT(warnings("--override-ckpt-iteration 4"),
              ElementsAre(HasSubstr("about 0 were seen before, and about 8 unseen")));
  const std::string weights = "--data-path 3 " + corpus() + " 1 " + b + " ";
  run_of("--load " + run_fixture("f32_qwen3") + " --finetune --save " + scratch_.path("blend") +
         common_words(scratch_) + weights + "--eval-iters 0 --save-interval 3 --exit-interval 3");
  const std::string blend = scratch_.path("blend");
  EXPECT_THAT(warnings(weights, blend), IsEmpty());
  EXPECT_THAT(warnings("--data-path 6 " + corpus() + " 2 " + b, blend), IsEmpty());
  const auto other = warnings("--data-path 1 " + corpus() + " 1 " + b + " ", blend);
  ASSERT_EQ(other.size(), 1u);
  EXPECT_THAT(other[0], HasSubstr("--data-path 3 " + corpus() + " 1 "));
}

TEST_F(SampleWarnings, SayWhereDataAreNotHereToBeCompared) {
  const std::string old = copy_of_corpus("old");
  run_of("--load " + run_fixture("f32_qwen3") + " --finetune --save " + scratch_.path("moved") +
         common_words(scratch_) + "--data-path " + old +
         " --eval-iters 0 --save-interval 3 --exit-interval 3");
  fs::remove(old + ".bin");
  fs::remove(old + ".idx");
  EXPECT_THAT(warnings("", scratch_.path("moved")),
              ElementsAre(AllOf(HasSubstr("--data-path " + old + " (now "),
                                HasSubstr("were seen before (" + old))));
}

TEST_F(SampleWarnings, AreOfMasksAndTokenizers) {
  EXPECT_THAT(
      warnings("--eod-mask-loss --goldfish-loss"),
      ElementsAre(HasSubstr("other parts of a sample have a loss than before: --eod-mask-loss "
                            "False (now True), --goldfish-loss False (now True)")));
  EXPECT_THAT(warnings("--reset-attention-mask --no-create-attention-mask-in-dataloader"),
              IsEmpty());
  EXPECT_THAT(warnings("--reset-attention-mask"), ElementsAre(HasSubstr("--reset-attention-mask")));
}

// The same files under another path are the same tokenizer, and one of which only the name is
// known.
TEST_F(SampleWarnings, AreOfAnotherTokenizer) {
  for (const char* name : {"a", "copies/a", "b"}) {
    fs::create_directories(scratch_.path(name));
    std::ofstream(scratch_.path(name) + "/tokenizer.json")
        << R"({"model": {"type": "BPE", "vocab": {")" << fs::path(name).filename().string()
        << R"(": 0, "c": 1}}})";
  }
  const std::string type =
      "--tokenizer-type HuggingFaceTokenizer --no-use-tokenizer-model-from-checkpoint-args "
      "--tokenizer-model ";
  const auto run = [&](const std::string& name, const std::string& model) {
    run_of("--load " + run_fixture("f32_qwen3") + " --finetune --save " + scratch_.path(name) +
           common_words(scratch_) + type + model +
           " --eval-iters 0 --save-interval 3 --exit-interval 3");
  };
  const std::string a = scratch_.path("a");
  run("of_a", a);
  EXPECT_THAT(warnings(type + a, scratch_.path("of_a")), IsEmpty());
  EXPECT_THAT(warnings(type + scratch_.path("copies/a"), scratch_.path("of_a")), IsEmpty());
  EXPECT_THAT(warnings(type + scratch_.path("b"), scratch_.path("of_a")),
              ElementsAre(AllOf(HasSubstr("another tokenizer: --tokenizer-model " + a),
                                HasSubstr("(now " + scratch_.path("b") + ")"))));
  fs::rename(a, scratch_.path("gone"));
  EXPECT_THAT(warnings(type + scratch_.path("copies/a"), scratch_.path("of_a")), IsEmpty());
  EXPECT_THAT(warnings(type + scratch_.path("b"), scratch_.path("of_a")).size(), 1);
}

// The arguments are the same, but not what is in the files.
TEST_F(SampleWarnings, AreOfDataThatChangedInTheirPlace) {
  const std::string data = copy_of_corpus("data");
  const std::string words = " --save " + scratch_.path("own") + common_words(scratch_) +
                            "--data-path " + data + " --eval-iters 0 --save-interval 3 ";
  run_of("--load " + run_fixture("f32_qwen3") + " --finetune --exit-interval 3 " + words);
  const std::string again = "--load " + scratch_.path("own") + words + "--exit-interval 4 ";
  EXPECT_THAT(run_of(again), Not(HasSubstr("WARNING")));
  const std::string b = std::string(FERRY_FIXTURES) + "/data/corpus_b_text_document";
  for (const char* end : {".bin", ".idx"}) {
    fs::copy_file(b + end, data + end, fs::copy_options::overwrite_existing);
  }
  const std::string warning = "the cached order of samples does not match the data";
  EXPECT_THAT(run_of(again), HasSubstr(warning));
}

TEST_F(SampleWarnings, AreOfMegatronsRunsAndComeAtTheStart) {
  const std::string theirs = run_fixture("f32_qwen3");
  EXPECT_THAT(warnings("", theirs), IsEmpty());
  EXPECT_THAT(warnings("--seed 12", theirs), ElementsAre(HasSubstr("--seed 11 (now 12)")));
  EXPECT_THAT(
      run_of("--load " + theirs + common_words(scratch_) + "--eval-iters 0 --exit-interval 6"),
      AllOf(Not(HasSubstr("WARNING")),
            HasSubstr(" > the run's data at /tmp/ck/data/corpus_a_text_document are not available; "
                      "assuming that those at " +
                      corpus())));
  const std::string printed = run_of("--load " + theirs + common_words(scratch_) +
                                     "--eval-iters 0 --exit-interval 6 --seed 12");
  const std::string warning = "WARNING: " + theirs + "/iter_0000005: the run that saved it";
  EXPECT_NE(printed.find(warning), std::string::npos) << printed;
  EXPECT_NE(printed.find(warning), printed.rfind(warning));
}

}  // namespace
}  // namespace ferry::test
