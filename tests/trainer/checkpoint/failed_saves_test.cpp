// What runs report of saves that fail, and what they leave on disk.
#include <chrono>
#include <thread>

#include "ckpt/io/forwarding_file_system.h"
#include "tests/trainer/language/runs.h"

namespace ferry::test {
namespace {

// Where one iteration's files cannot be written, as is found after so long.
class FailingOnce final : public ForwardingFileSystem {
 public:
  FailingOnce(std::string iteration, int milliseconds)
      : ForwardingFileSystem(posix_file_system()),
        iteration_(std::move(iteration)),
        delay_(milliseconds) {}
  std::unique_ptr<WritableFile> create(const std::string& path, uint64_t bytes) const override {
    if (path.ends_with(".distcp") && path.find(iteration_) != std::string::npos) {
      std::this_thread::sleep_for(delay_);
      fail(ErrorKind::exhausted, "cannot write {}: the disk is full", path);
    }
    return inner().create(path, bytes);
  }

 private:
  std::string iteration_;
  std::chrono::milliseconds delay_;
};

TEST(FailedSaves, OneThatFailsIsReportedBeforeTheNextIsDue) {
  const Scratch scratch;
  const Outcome outcome = outcome_of(
      "--load " + run_fixture("f32_qwen3") + " --save " + scratch.path("run") +
          common_words(scratch) + layout::kAll + "--eval-iters 0 --save-interval 10 --async-save ",
      test_device, std::make_shared<FailingOnce>("0000010", 0));
  EXPECT_THAT(outcome.problem, testing::HasSubstr("saving iteration 10: "));
  EXPECT_THAT(outcome.printed, testing::Not(testing::HasSubstr("checkpoint at iteration      20")));
}

// The last one of a run is not given up for one before it that failed.
TEST(FailedSaves, OneThatFailsLeavesTheNextOnItsWay) {
  const Scratch scratch;
  for (const std::string& failing : {std::string("run/"), std::string("non_persistent/")}) {
    const std::string path = scratch.path("run");
    const bool is_persistent = failing == "run/";
    const Outcome outcome = outcome_of(
        "--load " + run_fixture("f32_qwen3") + " --save " + path + common_words(scratch) +
            layout::kAll + "--eval-iters 0 --exit-interval 10 --async-save " +
            (is_persistent ? "--save-interval 9 "
                           : "--save-interval 30 --non-persistent-save-interval 9 "),
        test_device, std::make_shared<FailingOnce>("0000009", 2000));
    EXPECT_THAT(outcome.problem, testing::HasSubstr("saving iteration 9: "));
    EXPECT_EQ(read_text(path + "/latest_checkpointed_iteration.txt"), "10") << failing;
    fs::remove_all(path);
  }
}

TEST(FailedSaves, OneThatFailsIsReportedAlongWithWhatEndsTheRun) {
  const Scratch scratch;
  const Outcome outcome =
      outcome_of("--load " + run_fixture("f32_qwen3") + " --save " + scratch.path("run") +
                     common_words(scratch) + layout::kAll +
                     "--eval-iters 0 --save-interval 6 --async-save --override-opt-param-scheduler "
                     "--lr 1e30 --min-lr 1e29 --lr-warmup-iters 0 --clip-grad 0 ",
                 test_device, std::make_shared<FailingOnce>("0000006", 2000));
  EXPECT_THAT(outcome.problem, testing::AllOf(testing::HasSubstr("is not finite"),
                                              testing::HasSubstr("saving iteration 6: ")));
}

// A hook that is ended as the run fails has not taken too long.
TEST(FailedSaves, ACommandThatEndsWithTheRunIsReported) {
  const Scratch scratch;
  const Outcome outcome = outcome_of(
      "--load " + run_fixture("f32_qwen3") + " --save " + scratch.path("run") +
          common_words(scratch) + "--eval-iters 0 --save-interval 5 --after-save 'sleep 50' ",
      test_device, std::make_shared<FailingOnce>("0000015", 0));
  EXPECT_THAT(outcome.problem, testing::HasSubstr("the disk is full"));
  EXPECT_THAT(outcome.printed,
              testing::HasSubstr("the run ends: the command for iteration 10 was stopped"));
}

}  // namespace
}  // namespace ferry::test
