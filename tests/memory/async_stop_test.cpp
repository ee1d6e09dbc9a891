// The end of asynchronous savers of several ranks that are not stopped at the same moment.
#include <gmock/gmock.h>

#include <barrier>
#include <functional>
#include <optional>
#include <thread>

#include "ckpt/base/error.h"
#include "ckpt/memory/async_saver.h"
#include "tests/io/fault_file_system.h"
#include "tests/io/memory_file_system.h"
#include "tests/memory/random_model.h"

namespace ferry::test {
namespace {

using testing::HasSubstr;

class AsyncStop : public testing::Test {
 protected:
  AsyncStop() { memory_->create_folder("runs"); }

  // Each rank's saver on a thread of its own. They go when all ranks' work is done: no work may
  // wait for another rank's saver to end.
  void on_ranks(int ranks, const std::function<void(AsyncSaver&, int rank)>& work) {
    std::vector<std::shared_ptr<Group>> groups = thread_groups(ranks);
    std::barrier done(ranks);
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        AsyncSaver saver(memory_, "runs/a", groups[static_cast<size_t>(rank)]);
        work(saver, rank);
        done.arrive_and_wait();
      });
    }
  }

  Snapshot part(int64_t iteration, int rank, int ranks) const {
    return part_of_model(model_, iteration, rank, ranks);
  }

  static std::optional<Error> error_of(const std::function<void()>& work) {
    try {
      work();
    } catch (const Error& error) {
      return error;
    }
    return std::nullopt;
  }

  const std::shared_ptr<MemoryFileSystem> memory_ = std::make_shared<MemoryFileSystem>();
  const RandomModel model_ = random_model(1);
};

void expect_cancelled(const std::optional<Error>& error, const std::string& why) {
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind(), ErrorKind::cancelled);
  EXPECT_THAT(error->what(), HasSubstr(why));
}

TEST_F(AsyncStop, TheSaveThatOneRankRefusesFailsOnAllAndAllAreStopped) {
  on_ranks(3, [&](AsyncSaver& saver, int rank) {
    saver.save(part(1, rank, 3)).wait();
    saver.finish();
    if (rank == 1) saver.stop(StopMode::after_writes);
    const auto failed = error_of([&] {
      saver.save(part(2, rank, 3)).wait();
      saver.finish();
    });
    expect_cancelled(failed, rank == 1 ? "iteration 2 is not saved: the saver was stopped"
                                       : "saving iteration 2: rank 1: iteration 2 is not saved");
    EXPECT_TRUE(saver.is_stopped());
    EXPECT_EQ(saver.status().last_saved, 1);
  });
  expect_holds(memory_, "runs/a", model_);
}

TEST_F(AsyncStop, NobodyWaitsForARankThatFinishesAndSavesNoMore) {
  on_ranks(3, [&](AsyncSaver& saver, int rank) {
    if (rank == 2) {
      saver.stop(StopMode::after_writes);
      saver.finish();
      expect_cancelled(error_of([&] { saver.save(part(1, rank, 3)).wait(); }),
                       "the saver was stopped");
      return saver.finish();
    }
    const auto failed = error_of([&] {
      saver.save(part(1, rank, 3)).wait();
      saver.finish();
    });
    expect_cancelled(failed, "saving iteration 1: rank 2: its saver was stopped before");
    EXPECT_TRUE(saver.is_stopped());
  });
}

TEST_F(AsyncStop, WhatAllHaveStagedIsWrittenWhoeverIsStoppedMeanwhile) {
  std::barrier staged(2);
  on_ranks(2, [&](AsyncSaver& saver, int rank) {
    saver.save(part(1, rank, 2)).wait();
    staged.arrive_and_wait();
    if (rank == 0) saver.stop(StopMode::after_writes);
    saver.finish();
    EXPECT_EQ(saver.status().last_saved, 1);
  });
  expect_holds(memory_, "runs/a", model_);
}

TEST_F(AsyncStop, AtOnceOnOneRankGivesUpTheSaveOfAll) {
  on_ranks(2, [&](AsyncSaver& saver, int rank) {
    if (rank == 1) saver.stop(StopMode::at_once);
    const auto failed = error_of([&] {
      saver.save(part(1, rank, 2)).wait();
      saver.finish();
    });
    ASSERT_TRUE(failed);
    EXPECT_EQ(failed->kind(), ErrorKind::cancelled);
  });
  EXPECT_THAT(memory_->list("runs"), testing::Each(HasSubstr(".ferry")));
}

TEST_F(AsyncStop, ABrokenGroupIsOneErrorForTheSaveInFlight) {
  std::vector<std::shared_ptr<Group>> groups = thread_groups(2);
  AsyncSaver saver(memory_, "runs/a", groups[0]);
  saver.save(part(1, 0, 2)).wait();
  groups[1].reset();
  const auto failed = error_of([&] { saver.finish(); });
  expect_cancelled(failed, "the ranks can no longer communicate");
  EXPECT_THAT(failed->what(), testing::Not(HasSubstr("more saves failed")));
}

// A part may take an hour to write: nobody is to hear only then that another rank has failed.
TEST_F(AsyncStop, WhatARankWritesIsGivenUpWhenAnotherHasFailed) {
  RandomModel model;
  for (uint32_t i = 0; i < 300; ++i) {
    model.emplace(fmt::format("weight{}", i), random_tensor(DType::f32, {18, 5}, i));
  }
  for (const bool finishes : {true, false}) {
    const std::vector<std::shared_ptr<Group>> groups = thread_groups(2);
    const auto slow = std::make_shared<FaultFileSystem>(
        memory_, 1,
        [](const std::string&) { std::this_thread::sleep_for(std::chrono::milliseconds(10)); },
        true);
    AsyncSaverOptions options;
    options.save.engine.threads = 1;
    AsyncSaver other(memory_, "runs/a", groups[1], options);
    {
      AsyncSaver saver(slow, "runs/a", groups[0], options);
      auto first = saver.save(part_of_model(model, 1, 0, 2));
      auto second = other.save(part_of_model(model, 1, 1, 2));
      first.wait(), second.wait();
      while (slow->operations() < 10) std::this_thread::yield();
      groups[1]->abort(Error(ErrorKind::io, "the network is gone"));
      if (finishes) {
        const auto failed = error_of([&] { saver.finish(); });
        ASSERT_TRUE(failed);
        EXPECT_THAT(failed->what(), HasSubstr("rank 1: the network is gone"));
      }
    }
    EXPECT_LT(slow->operations(), 100u);
    EXPECT_THAT(memory_->list("runs"), testing::IsEmpty());
  }
}

}  // namespace
}  // namespace ferry::test
