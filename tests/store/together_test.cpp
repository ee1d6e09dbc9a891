// Several processes at one run folder at once: writers of one iteration, writers of many, prunes
// and readers, on file systems with locks and without.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>

#include "ckpt/base/error.h"
#include "ckpt/checkpoint.h"
#include "ckpt/io/staging/reader_lock.h"
#include "ckpt/store/prune.h"
#include "ckpt/store/run_store.h"
#include "tests/faults/crash.h"
#include "tests/support.h"

namespace ferry::test {
namespace {

namespace fs = std::filesystem;

constexpr int kOk = 0, kBusy = 10, kExists = 11, kOther = 12;

class Together : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    fs::create_directories(run_);
    quirks_.no_locks = GetParam();
    quirks_.no_exchange = GetParam();
  }

  void save(int64_t iteration, bool overwrite) const {
    BeginOptions options;
    options.overwrite = overwrite;
    StagedIteration staged = RunStore(files_, run_).begin(iteration, options);
    for (const std::string& name : files_->list(kSource)) {
      staged.write_file(name, read_file(*files_, kSource + "/" + name, 1 << 20));
    }
    staged.write_file("writer", std::to_string(::getpid()));
    staged.commit();
  }

  // Runs all at once, each in a process of its own; their codes.
  std::vector<int> run(const std::vector<std::function<void()>>& jobs) {
    std::vector<int> codes;
    messages_.clear();
    for (const Ending& ending : run_together(jobs, quirks_)) {
      messages_ += ending.message + "\n";
      if (!ending.failed) {
        codes.push_back(kOk);
      } else if (ending.kind == "busy") {
        codes.push_back(kBusy);
      } else if (ending.kind == "invalid") {
        codes.push_back(kExists);
      } else {
        codes.push_back(kOther);
        ADD_FAILURE() << ending.message;
      }
    }
    return codes;
  }

  std::shared_ptr<const FileSystem> files_ = posix_file_system();
  const std::string kSource = fixture("megatron/hot_llama/iter_0000005");
  const CrashFolder folder_;
  const std::string run_ = folder_.path("run");
  FaultPlan quirks_;
  std::string messages_;  // of the jobs that ran last
};

TEST_P(Together, OneWriterOfOneIterationWins) {
  for (int round = 1; round <= 30 && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    const std::vector<int> codes =
        run(std::vector<std::function<void()>>(4, [&] { save(round, false); }));
    EXPECT_EQ(std::count(codes.begin(), codes.end(), kOk), 1);
    expect_good_run(run_);
    expect_clean(run_);
  }
}

TEST_P(Together, ReplacementsFollowEachOther) {
  save(1, false);
  for (int round = 1; round <= 20 && !HasFailure(); ++round) {
    const std::vector<int> codes =
        run(std::vector<std::function<void()>>(4, [&] { save(1, true); }));
    EXPECT_GE(std::count(codes.begin(), codes.end(), kOk), 1);
    for (const int code : codes) EXPECT_TRUE(code == kOk || code == kBusy) << code;
    expect_good_run(run_);
    expect_clean(run_);
  }
}

TEST_P(Together, SavesPrunesAndReads) {
  save(1, false);
  std::vector<std::function<void()>> jobs;
  for (int64_t writer = 0; writer < 3; ++writer) {
    jobs.emplace_back([this, writer] {
      for (int64_t i = 0; i < 12; ++i) save(2 + i * 3 + writer, false);
    });
  }
  jobs.emplace_back([this] {
    for (int i = 0; i < 25; ++i) prune(files_, run_, {2, std::nullopt, false}, {});
  });
  // A reader meets whole checkpoints only, or none where a prune was faster.
  jobs.emplace_back([this] {
    for (int i = 0; i < 60; ++i) {
      try {
        const Checkpoint checkpoint = open_checkpoint(files_, run_);
        for (const Entry& entry : checkpoint.catalog->entries) {
          read_tensor(checkpoint.catalog, entry, 1 << 20);
        }
        check_reader_locks(checkpoint.catalog->reader_locks);
      } catch (const Error& error) {
        if (error.kind() == ErrorKind::busy) continue;
        if (error.kind() == ErrorKind::not_found) continue;
        throw;
      }
    }
  });
  const std::vector<int> codes = run(jobs);
  for (const int code : codes) EXPECT_EQ(code, kOk) << messages_;
  prune(files_, run_, {2, std::nullopt, false}, {});
  expect_good_run(run_);
  expect_clean(run_);
  EXPECT_EQ(read_file(*files_, run_ + "/" + std::string(kTrackerName), 10), "37");
}

// What is read stays while it is read, seen by another process.
TEST_P(Together, AReadersIterationIsNotPruned) {
  if (GetParam()) GTEST_SKIP() << "needs locks";
  save(1, false);
  save(2, false);
  auto checkpoint = std::make_unique<Checkpoint>(open_checkpoint(files_, run_, {"1", false}));
  const auto prune_all = [this] { prune(files_, run_, {1, std::nullopt, false}, {}); };
  EXPECT_EQ(run({prune_all})[0], kOk);
  EXPECT_TRUE(fs::exists(run_ + "/iter_0000001"));
  EXPECT_EQ(run({[this] { save(1, true); }})[0], kBusy);
  checkpoint.reset();
  EXPECT_EQ(run({prune_all})[0], kOk);
  EXPECT_FALSE(fs::exists(run_ + "/iter_0000001"));
}

INSTANTIATE_TEST_SUITE_P(FileSystems, Together, testing::Bool(), [](const auto& each) {
  return std::string(each.param ? "without_locks" : "with_locks");
});

}  // namespace
}  // namespace ferry::test
