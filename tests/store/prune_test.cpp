// What a prune removes, and all that it must not touch.
#include "ckpt/store/prune.h"

#include <gmock/gmock.h>

#include "ckpt/base/error.h"
#include "ckpt/core/catalog.h"
#include "ckpt/io/staging/reader_lock.h"
#include "ckpt/store/run_store.h"
#include "tests/io/memory_file_system.h"

namespace ferry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

class PruneTest : public testing::Test {
 protected:
  PruneTest() {
    memory_->set_clock(1000);
    for (const int iteration : {100, 200, 300, 400, 500, 600}) put_complete(iteration);
    put_tracker("600");
  }

  static std::string path(int iteration) { return "run/" + iteration_folder_name(iteration); }
  void put_complete(int iteration) {
    memory_->put(path(iteration) + "/.metadata", "1234567890");
    memory_->put(path(iteration) + "/metadata.json", "{}");
  }
  void put_unfinished(int iteration) { memory_->put(path(iteration) + "/__0_0.distcp", "x"); }
  void put_tracker(const std::string& content) {
    memory_->put("run/latest_checkpointed_iteration.txt", content);
  }

  PruneReport run(const Retention& retention) {
    return report_ = prune(memory_, "run", retention, options_);
  }
  std::string problem(const Retention& retention) {
    try {
      run(retention);
      return "";
    } catch (const Error& error) {
      return fmt::format("{}: {}", name(error.kind()), error.what());
    }
  }
  static Retention last(int64_t count) { return {count, std::nullopt, false}; }
  static Retention every(int64_t step) { return {std::nullopt, step, false}; }

  std::vector<int64_t> left() const {
    std::vector<int64_t> iterations;
    for (const std::string& name : memory_->list("run")) {
      if (const auto iteration = iteration_of(name)) iterations.push_back(*iteration);
    }
    return iterations;
  }
  std::string reason(int64_t iteration) const {
    for (const PrunedItem& item : report_.iterations) {
      if (item.iteration == iteration) return item.reason;
    }
    return "not in the report";
  }

  std::shared_ptr<MemoryFileSystem> memory_ = std::make_shared<MemoryFileSystem>();
  PruneOptions options_;
  PruneReport report_;
};

TEST_F(PruneTest, KeepsTheLast) {
  run(last(2));
  EXPECT_THAT(left(), ElementsAre(500, 600));
  EXPECT_EQ(report_.bytes, 4 * 12u);
  EXPECT_EQ(reason(500), "one of the last 2");
  EXPECT_EQ(memory_->list("run").size(), 3u);
}

TEST_F(PruneTest, KeepsMultiplesAndAlwaysTheLastGoodOne) {
  put_tracker("500");
  run(every(300));
  EXPECT_THAT(left(), ElementsAre(300, 500, 600));
  EXPECT_EQ(reason(300), "divisible by 300");
  EXPECT_EQ(reason(500), "the tracker names it");
  EXPECT_EQ(reason(600), "the last good one");
  run({1, 300, false});
  EXPECT_THAT(left(), ElementsAre(300, 500, 600));
}

TEST_F(PruneTest, ReleaseStays) {
  memory_->put("run/release/.metadata", "x");
  memory_->put("run/release/metadata.json", "{}");
  run(last(1));
  EXPECT_EQ(memory_->status("run/release").kind, PathKind::folder);
}

TEST_F(PruneTest, NeedsSomethingToKeep) {
  for (const Retention wrong : {Retention{}, last(0), every(0), last(-1)}) {
    EXPECT_THROW(run(wrong), Error);
  }
  EXPECT_EQ(left().size(), 6u);
  try {
    prune(memory_, "run/iter_0000100", last(1), {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::not_found);
  }
}

TEST_F(PruneTest, ADryRunChangesNothing) {
  options_.dry_run = true;
  run(last(1));
  EXPECT_EQ(left().size(), 6u);
  EXPECT_EQ(report_.bytes, 5 * 12u);
  EXPECT_TRUE(report_.iterations[0].goes);
}

// What does not open is no good one: the last that does is kept, and the damaged are named.
TEST_F(PruneTest, DamagedOnesDoNotCount) {
  options_.checks.problem_of = [](const std::string& folder) -> std::string {
    return folder.ends_with("600") || folder.ends_with("500") ? "truncated" : "";
  };
  put_tracker("600");
  run(last(1));
  EXPECT_THAT(left(), ElementsAre(400, 500, 600));
  EXPECT_EQ(reason(600), "not good: truncated");
  EXPECT_EQ(reason(400), "the last good one");
}

// The costly question is asked of the one that all depends on, and of no other.
TEST_F(PruneTest, TheLastGoodOneIsCheckedTwice) {
  std::vector<std::string> asked;
  options_.checks.problem_of_last = [&](const std::string& folder) -> std::string {
    asked.push_back(folder);
    return folder.ends_with("600") ? "a flipped bit" : "";
  };
  run(last(3));
  EXPECT_THAT(asked, ElementsAre(path(600), path(500)));
  EXPECT_THAT(left(), ElementsAre(300, 400, 500, 600));
  EXPECT_EQ(reason(600), "not good: a flipped bit");
}

// Nobody knows whether it is being read.
TEST_F(PruneTest, WhatCannotBeReadStays) {
  class Locked : public MemoryFileSystem {
   public:
    std::unique_ptr<LockableFile> open_lockable(const std::string& path,
                                                LockMode strongest) const override {
      if (path == "run/iter_0000200/.metadata") fail(ErrorKind::io, "Permission denied");
      return MemoryFileSystem::open_lockable(path, strongest);
    }
  };
  memory_ = std::make_shared<Locked>();
  for (const int iteration : {100, 200, 300}) put_complete(iteration);
  run(last(1));
  EXPECT_THAT(left(), ElementsAre(200, 300));
  EXPECT_THAT(reason(200), HasSubstr("it is unknown whether it is being read: Permission denied"));
}

// Leftovers that are still there after the cleaning are not reported as removed.
TEST_F(PruneTest, LeftoversThatStayAreReported) {
  class Stubborn : public MemoryFileSystem {
   public:
    void remove_all(const std::string& path) const override {
      if (path.find(".ferry-trash.") != std::string::npos) fail(ErrorKind::io, "no");
      MemoryFileSystem::remove_all(path);
    }
  };
  memory_ = std::make_shared<Stubborn>();
  put_complete(600);
  LockRecord record;
  record.owner = ProcessIdentity::current();
  record.owner.process = 4'194'305;
  record.token = "00112233aabbccdd";
  memory_->put("run/" + aside_name(Aside::trash, "iter_0000050", record.token) + "/x", "123");
  memory_->put("run/" + aside_name(Aside::owner, "iter_0000050", record.token), record.to_text());
  run(last(1));
  ASSERT_EQ(report_.leftovers.size(), 1u);
  EXPECT_FALSE(report_.leftovers[0].goes);
  EXPECT_THAT(report_.leftovers[0].reason, HasSubstr("could not be removed"));
  EXPECT_EQ(report_.bytes, 0u);
}

TEST_F(PruneTest, WhenNothingIsGoodAllStays) {
  options_.checks.problem_of = [](const std::string&) { return "damaged"; };
  run(last(1));
  EXPECT_EQ(left().size(), 6u);
}

TEST_F(PruneTest, UnfinishedStayUnlessAskedForAndOlder) {
  put_unfinished(150);
  put_unfinished(700);
  run(last(1));
  EXPECT_THAT(left(), ElementsAre(150, 600, 700));
  EXPECT_THAT(reason(150), HasSubstr("unfinished (neither .metadata"));
  run({1, std::nullopt, true});
  EXPECT_THAT(left(), ElementsAre(600, 700));
  EXPECT_THAT(reason(700), HasSubstr("not older than the last good one"));
}

// A run that went back: an earlier iteration is being written now, by a program without locks.
TEST_F(PruneTest, UnfinishedThatChangedLatelyStay) {
  memory_->set_clock(2000);
  put_unfinished(150);
  run({1, std::nullopt, true});
  EXPECT_THAT(left(), ElementsAre(150, 600));
  EXPECT_THAT(reason(150), HasSubstr("changed after the last good one"));
}

TEST_F(PruneTest, WhatIsBeingReadStays) {
  const ReaderLock mark(*memory_, path(200));
  run(last(1));
  EXPECT_THAT(left(), ElementsAre(200, 600));
  EXPECT_EQ(reason(200), "being read");
  EXPECT_TRUE(mark.still_there());
}

TEST_F(PruneTest, WhatIsBeingWrittenStays) {
  BeginOptions overwrite;
  overwrite.overwrite = true;
  const StagedIteration staged = RunStore(memory_, "run").begin(200, overwrite);
  run(last(1));
  EXPECT_THAT(left(), ElementsAre(200, 600));
  EXPECT_THAT(reason(200), HasSubstr("being written"));
  ASSERT_EQ(report_.leftovers.size(), 1u);
  EXPECT_FALSE(report_.leftovers[0].goes);
  EXPECT_THAT(report_.leftovers[0].reason, HasSubstr("which runs"));
}

TEST_F(PruneTest, RemovesWhatTheDeadLeft) {
  LockRecord record;
  record.owner = ProcessIdentity::current();
  record.owner.process = 4'194'305;
  record.token = "00112233aabbccdd";
  memory_->put("run/" + aside_name(Aside::lock, "iter_0000700", {}), record.to_text());
  memory_->put("run/" + aside_name(Aside::partial, "iter_0000700", record.token) + "/x", "12345");
  memory_->put("run/" + aside_name(Aside::trash, "iter_0000050", record.token) + "/x", "123");
  memory_->put("run/" + aside_name(Aside::owner, "iter_0000050", record.token), record.to_text());
  options_.dry_run = true;
  run(last(6));
  EXPECT_EQ(report_.bytes, 8u);
  options_.dry_run = false;
  run(last(6));
  EXPECT_EQ(report_.bytes, 8u);
  EXPECT_EQ(memory_->list("run").size(), 7u);
}

// With a file of the first deleted, that one cannot be helped.
TEST_F(PruneTest, StoppedItPutsBackWhatIsWholeAndTheNextOneGoesOn) {
  std::atomic<bool> cancel = false;
  options_.cancel = &cancel;
  std::vector<int64_t> left_at_first;
  options_.progress = [&](const Progress&) {
    left_at_first = left();
    cancel = true;
  };
  EXPECT_EQ(problem(last(1)),
            "cancelled: stopped on request: 1 of the 5 iterations that were to go is removed; what "
            "is left of iter_0000100 goes with the next prune or save");
  EXPECT_THAT(left_at_first, ElementsAre(600));  // renamed before anything was deleted
  EXPECT_THAT(left(), ElementsAre(200, 300, 400, 500, 600));
  for (const int64_t iteration : left()) {
    EXPECT_EQ(memory_->list(path(static_cast<int>(iteration))).size(), 2u) << iteration;
  }
  EXPECT_EQ(memory_->list("run").size(), 5 + 1 + 2u);  // the tracker, and a record for the rest
  options_ = {};
  run(last(1));
  EXPECT_THAT(memory_->list("run"),
              UnorderedElementsAre("iter_0000600", "latest_checkpointed_iteration.txt"));
}

TEST_F(PruneTest, StoppedBetweenTwoItReportsHowManyAreRemoved) {
  std::atomic<bool> cancel = false;
  options_.cancel = &cancel;
  options_.progress = [&](const Progress& progress) { cancel = progress.bytes_done >= 24; };
  EXPECT_EQ(problem(last(1)),
            "cancelled: stopped on request: 2 of the 5 iterations that were to go are removed");
  EXPECT_THAT(left(), ElementsAre(300, 400, 500, 600));
  EXPECT_EQ(memory_->list("run").size(), 5u);
}

TEST_F(PruneTest, StoppedWhileItRenamesItRemovesNothing) {
  class Cancelling : public MemoryFileSystem {
   public:
    void rename(const std::string& from, const std::string& to) const override {
      MemoryFileSystem::rename(from, to);
      const auto aside = parse_aside(split_path(to).name);
      if (aside && aside->kind == Aside::trash && aside->target_name == "iter_0000200") {
        cancel = true;
      }
    }
    mutable std::atomic<bool> cancel = false;
  };
  const auto cancelling = std::make_shared<Cancelling>();
  memory_ = cancelling;
  for (const int iteration : {100, 200, 300, 400, 500, 600}) put_complete(iteration);
  options_.cancel = &cancelling->cancel;
  EXPECT_EQ(problem(last(1)), "cancelled: stopped on request: no iteration was removed");
  EXPECT_TRUE(cancelling->cancel);
  EXPECT_THAT(left(), ElementsAre(100, 200, 300, 400, 500, 600));
  EXPECT_EQ(memory_->list("run").size(), 6u);
}

// The new one counts, whoever stops the prune.
TEST_F(PruneTest, StoppedItPutsNothingBackWhereAnotherWrites) {
  std::atomic<bool> cancel = false;
  options_.cancel = &cancel;
  std::optional<StagedIteration> staged;
  options_.progress = [&](const Progress&) {
    if (!cancel) staged.emplace(RunStore(memory_, "run").begin(300, {}));
    put_unfinished(400);  // by a program that takes no lock
    cancel = true;
  };
  EXPECT_EQ(problem(last(1)),
            "cancelled: stopped on request: 3 of the 5 iterations that were to go are removed; "
            "what is left of iter_0000100, iter_0000300, iter_0000400 goes with the next prune or "
            "save");
  EXPECT_THAT(left(), ElementsAre(200, 400, 500, 600));
  EXPECT_THAT(memory_->list(path(400)), ElementsAre("__0_0.distcp"));
}

TEST_F(PruneTest, ReportsAStaleTracker) {
  put_tracker("550");
  run(last(2));
  ASSERT_EQ(report_.notes.size(), 1u);
  EXPECT_THAT(report_.notes[0], HasSubstr("names iteration 550, which is not there"));
}

}  // namespace
}  // namespace ferry
