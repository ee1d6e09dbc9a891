// Saving into a run folder: what others see before and after, and where the tracker goes.
#include "ckpt/store/run_store.h"

#include <gmock/gmock.h>

#include "ckpt/base/error.h"
#include "tests/io/fault_file_system.h"
#include "tests/io/memory_file_system.h"

namespace ferry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class RunStoreTest : public testing::Test {
 protected:
  RunStoreTest() { memory_->create_folder("run"); }

  void save(std::optional<int64_t> iteration, const BeginOptions& options = {}) {
    StagedIteration staged = store_.begin(iteration, options);
    staged.write_file(".metadata", "x");
    staged.write_file("metadata.json", "{}");
    staged.commit();
    notes_ = staged.notes();
  }
  std::string tracker() const { return memory_->get("run/latest_checkpointed_iteration.txt"); }

  std::shared_ptr<MemoryFileSystem> memory_ = std::make_shared<MemoryFileSystem>();
  RunStore store_{memory_, "run/"};
  std::vector<std::string> notes_;
};

TEST_F(RunStoreTest, AnIterationAppearsWholeAndThenTheTrackerNamesIt) {
  StagedIteration staged = store_.begin(100);
  staged.write_file(".metadata", "x");
  staged.write_file("metadata.json", "{}");
  EXPECT_TRUE(store_.read().iterations.empty());
  EXPECT_EQ(staged.target(), "run/iter_0000100");
  staged.commit();
  EXPECT_THAT(memory_->list("run"),
              ElementsAre("iter_0000100", "latest_checkpointed_iteration.txt"));
  EXPECT_EQ(tracker(), "100");
}

TEST_F(RunStoreTest, WithoutCommitNothingIsLeft) {
  { store_.begin(100).write_file(".metadata", "x"); }
  EXPECT_TRUE(memory_->list("run").empty());
}

TEST_F(RunStoreTest, AMissingRunFolderAppearsWhole) {
  memory_->create_folder("runs");
  const RunStore fresh(memory_, "runs/fresh");
  {
    StagedIteration staged = fresh.begin(7);
    staged.write_file(".metadata", "x");
    EXPECT_EQ(memory_->status("runs/fresh").kind, PathKind::missing);
    staged.commit();
  }
  EXPECT_THAT(memory_->list("runs"), ElementsAre("fresh"));
  EXPECT_THAT(memory_->list("runs/fresh"),
              ElementsAre("iter_0000007", "latest_checkpointed_iteration.txt"));
  EXPECT_EQ(memory_->get("runs/fresh/latest_checkpointed_iteration.txt"), "7");
  { fresh.begin(8); }
  EXPECT_THAT(memory_->list("runs/fresh").size(), 2u);
}

TEST_F(RunStoreTest, AFolderOfAnotherNameLeavesTheTracker) {
  save(5);
  BeginOptions options;
  options.folder = "weights";
  EXPECT_THROW(store_.begin(7, options), Error);
  options.tracker = TrackerMove::never;
  save(7, options);
  EXPECT_THAT(memory_->list("run"),
              ElementsAre("iter_0000005", "latest_checkpointed_iteration.txt", "weights"));
  EXPECT_EQ(tracker(), "5");
}

TEST_F(RunStoreTest, TheTrackerMovesForward) {
  save(100);
  save(50);
  EXPECT_EQ(tracker(), "100");
  ASSERT_EQ(notes_.size(), 1u);
  EXPECT_THAT(notes_[0], HasSubstr("still names iteration 100, which is later than 50"));
  BeginOptions options;
  options.tracker = TrackerMove::always;
  save(60, options);
  EXPECT_EQ(tracker(), "60");
  options.tracker = TrackerMove::never;
  save(200, options);
  EXPECT_EQ(tracker(), "60");
  save(std::nullopt);
  EXPECT_EQ(tracker(), "60");
  save(210);
  EXPECT_EQ(tracker(), "210");
}

TEST_F(RunStoreTest, AStaleTrackerIsCorrected) {
  memory_->put("run/latest_checkpointed_iteration.txt", "500");
  save(100);
  EXPECT_EQ(tracker(), "100");
  memory_->put("run/latest_checkpointed_iteration.txt", "garbage");
  save(90);
  EXPECT_EQ(tracker(), "90");
}

TEST_F(RunStoreTest, ReleaseGivesWayToIterations) {
  save(std::nullopt);
  EXPECT_EQ(tracker(), "release");
  save(1);
  EXPECT_EQ(tracker(), "1");
}

TEST_F(RunStoreTest, AnIterationIsReplacedOnRequestOnly) {
  save(100);
  memory_->put("run/iter_0000100/old", "x");
  EXPECT_THROW(store_.begin(100), Error);
  BeginOptions options;
  options.overwrite = true;
  save(100, options);
  EXPECT_THAT(memory_->list("run/iter_0000100"), ElementsAre(".metadata", "metadata.json"));
  EXPECT_EQ(memory_->list("run").size(), 2u);
}

TEST_F(RunStoreTest, RefusesWhatIsNoIteration) { EXPECT_THROW(store_.begin(-1), Error); }

TEST_F(RunStoreTest, TwoWritersOfOneIteration) {
  const StagedIteration first = store_.begin(100);
  const StagedIteration other = store_.begin(101);
  try {
    store_.begin(100);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::busy);
    EXPECT_THAT(error.what(), HasSubstr("iter_0000100 is being written by process"));
  }
}

TEST(RunStoreFaults, AnErrorSaysWhenTheIterationStands) {
  bool failed_late = false;
  for (uint64_t n = 1;; ++n) {
    const auto memory = std::make_shared<MemoryFileSystem>();
    memory->put("run/latest_checkpointed_iteration.txt", "1");
    const auto faulty = std::make_shared<FaultFileSystem>(memory, n, ErrorKind::io);
    try {
      StagedIteration staged = RunStore(faulty, "run").begin(5);
      staged.write_file(".metadata", "x");
      staged.write_file("metadata.json", "{}");
      staged.commit();
      break;
    } catch (const Error& error) {
      const bool stands = memory->status("run/iter_0000005/metadata.json").kind == PathKind::file;
      const bool moved = memory->get("run/latest_checkpointed_iteration.txt") == "5";
      const std::string message = error.what();
      EXPECT_EQ(message.find("iter_0000005 is ") != std::string::npos &&
                    message.find("complete") != std::string::npos,
                stands)
          << message;
      EXPECT_EQ(message.find("it names 5 now") != std::string::npos, moved) << message;
      failed_late |= moved;
    }
  }
  EXPECT_TRUE(failed_late);
}

}  // namespace
}  // namespace ferry
