// What a save or a prune meets that another process did between two of its steps.
#include <gmock/gmock.h>

#include <functional>

#include "ckpt/base/error.h"
#include "ckpt/store/prune.h"
#include "ckpt/store/run_store.h"
#include "tests/io/hooked_file_system.h"
#include "tests/io/memory_file_system.h"

namespace ferry {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kTracker = "run/latest_checkpointed_iteration.txt";

class MeanwhileTest : public testing::Test {
 protected:
  MeanwhileTest() { memory_->set_clock(1000); }

  static std::string path(int64_t iteration) { return "run/" + iteration_folder_name(iteration); }
  void put_complete(int64_t iteration) {
    memory_->put(path(iteration) + "/.metadata", "1234567890");
    memory_->put(path(iteration) + "/metadata.json", "{}");
  }
  static StagedIteration stage(const std::shared_ptr<const FileSystem>& files, int64_t iteration) {
    BeginOptions options;
    options.overwrite = true;
    StagedIteration staged = RunStore(files, "run").begin(iteration, options);
    staged.write_file(".metadata", "1234567890");
    staged.write_file("metadata.json", "{}");
    return staged;
  }
  static void save(const std::shared_ptr<const FileSystem>& files, int64_t iteration) {
    stage(files, iteration).commit();
  }
  PruneReport prune_hooked() { return prune(hooked_, "run", retention_, {}); }
  // Before the n-th such call another process does something.
  void before(std::string_view call, const std::string& part_of_path, std::function<void()> other,
              int n = 1) {
    hooked_->before = [=](std::string_view name, const std::string& path) mutable {
      const bool is_such = name == call && path.find(part_of_path) != std::string::npos;
      if (is_such && --n == 0) other();
    };
  }
  bool stands(int64_t iteration) const {
    return memory_->status(path(iteration)).kind != PathKind::missing;
  }

  std::shared_ptr<MemoryFileSystem> memory_ = std::make_shared<MemoryFileSystem>();
  std::shared_ptr<HookedFileSystem> hooked_ = std::make_shared<HookedFileSystem>(memory_);
  Retention retention_{1, std::nullopt, false};
};

TEST_F(MeanwhileTest, ASecondFirstSaveFindsTheRun) {
  before("create", ".ferry-owner.run", [&] { save(memory_, 1); });
  save(hooked_, 2);
  EXPECT_TRUE(stands(1) && stands(2));
  EXPECT_EQ(memory_->get(kTracker), "2");
}

// By a logger, say: what was written for hours is not thrown away.
TEST_F(MeanwhileTest, ARunFolderThatIsMadeMeanwhileTakesTheIteration) {
  StagedIteration staged = stage(memory_, 7);
  memory_->put("run/events.out", "x");
  staged.commit();
  EXPECT_THAT(memory_->list("run"),
              ElementsAre("events.out", "iter_0000007", "latest_checkpointed_iteration.txt"));
  EXPECT_THAT(memory_->list(path(7)), ElementsAre(".metadata", "metadata.json"));
  EXPECT_THAT(memory_->list(""), ElementsAre("run"));
}

TEST_F(MeanwhileTest, ARunFolderThatIsMadeMeanwhileKeepsItsIterationOfThatNumber) {
  StagedIteration staged = stage(memory_, 7);
  put_complete(7);
  memory_->put(path(7) + "/metadata.json", "other");
  try {
    staged.commit();
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the target run/iter_0000007 exists"));
  }
  EXPECT_EQ(memory_->get(path(7) + "/metadata.json"), "other");
}

// The name of an iteration is free as soon as it is moved, however long its files take to go.
TEST_F(MeanwhileTest, ASaveDoesNotWaitForAPrunesFiles) {
  for (const int iteration : {100, 200, 300}) put_complete(iteration);
  before("remove_all", ".ferry-trash", [&] { save(memory_, 200); });
  prune_hooked();
  EXPECT_TRUE(stands(200) && !stands(100));
  EXPECT_THAT(memory_->list("run"),
              ElementsAre("iter_0000200", "iter_0000300", "latest_checkpointed_iteration.txt"));
}

// It was unfinished when it was decided what goes.
TEST_F(MeanwhileTest, WhatIsFinishedMeanwhileStays) {
  for (const int iteration : {200, 300}) put_complete(iteration);
  memory_->put(path(100) + "/__0_0.distcp", "x");
  memory_->put(kTracker, "300");
  retention_ = {1, 100, true};
  before("create", "latest_checkpointed", [&] { save(memory_, 100); });
  const PruneReport report = prune_hooked();
  EXPECT_TRUE(stands(100));
  EXPECT_EQ(report.iterations[0].reason, "finished meanwhile");
}

TEST_F(MeanwhileTest, ACommitDuringAPrune) {
  for (const int iteration : {200, 300}) put_complete(iteration);
  StagedIteration staged = stage(memory_, 400);
  constexpr int kSizes = 2;  // the owners of leftovers are checked first
  before(
      "list", ".ferry-partial", [&] { staged.commit(); }, kSizes);
  prune_hooked();
  EXPECT_TRUE(stands(400));
}

TEST_F(MeanwhileTest, TwoPrunes) {
  for (const int iteration : {100, 200, 300}) put_complete(iteration);
  constexpr int kSizes = 2;  // whether it is whole is checked first
  before(
      "list", "iter_0000200", [&] { prune(memory_, "run", retention_, {}); }, kSizes);
  prune_hooked();
  EXPECT_THAT(memory_->list("run"), ElementsAre("iter_0000300"));
}

// It belongs to another user: neither saves nor prunes fail because of it.
TEST_F(MeanwhileTest, ARecordThatMayNotBeRead) {
  for (const int iteration : {100, 300}) put_complete(iteration);
  memory_->put("run/.ferry-lock.iter%5F0000200", "of another user");
  memory_->put("run/.ferry-owner.iter%5F0000400.00112233aabbccdd", "of another user");
  hooked_->before = [](std::string_view call, const std::string& path) {
    const bool is_others = path.ends_with("5F0000200") || path.ends_with("aabbccdd");
    if (is_others && (call == "open" || call == "open_lockable")) {
      fail(ErrorKind::io, "cannot open {}: Permission denied", path);
    }
  };
  save(hooked_, 500);
  prune_hooked();
  EXPECT_TRUE(stands(500) && !stands(100));
  EXPECT_EQ(memory_->list("run").size(), 4u);
}

TEST_F(MeanwhileTest, AFullDiskIsReportedWithWhatToRemove) {
  for (const int iteration : {100, 200}) put_complete(iteration);
  hooked_->before = [](std::string_view call, const std::string& path) {
    if (call == "create") fail(ErrorKind::exhausted, "cannot write {}: No space left", path);
  };
  try {
    prune_hooked();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::exhausted);
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("No space left"), HasSubstr("remove run/iter_0000100, "
                                                            "which goes, by hand")));
  }
}

}  // namespace
}  // namespace ferry
