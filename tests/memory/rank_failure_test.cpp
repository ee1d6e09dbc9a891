// A rank of several that throws, or runs out of memory, at any step of a save: all ranks get an
// error, none waits for ever, what is under a final name is whole, and the next save succeeds.
#include <gmock/gmock.h>

#include <algorithm>
#include <latch>
#include <stdexcept>

#include "ckpt/memory/async_saver.h"
#include "ckpt/memory/save.h"
#include "tests/io/fault_file_system.h"
#include "tests/io/memory_file_system.h"
#include "tests/memory/random_model.h"
#include "tests/short_of_memory.h"

namespace ferry::test {
namespace {

using testing::AnyOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kRanks = 3;

RandomModel small_model(uint32_t seed) {
  return {{"weight", random_tensor(DType::f32, {18, 5}, seed)},
          {"bias", random_tensor(DType::bf16, {18}, seed + 1)}};
}

class RankFailure : public testing::Test {
 protected:
  RankFailure() { start_anew(); }

  void start_anew() {
    memory_ = std::make_shared<MemoryFileSystem>();
    memory_->create_folder("runs");
  }

  static SaveOptions options() {
    SaveOptions options;
    options.engine.threads = 1;
    options.engine.memory_bytes = 1 << 20;
    options.begin.overwrite = true;
    return options;
  }

  Snapshot part(int rank) const { return part_of_model(model_, 1, rank, kRanks); }

  // What is under a final name is whole; other files are in nobody's way.
  void expect_recovers() const {
    if (memory_->status("runs/a").kind != PathKind::missing)
      expect_holds(memory_, "runs/a", model_);
    const RandomModel next = small_model(9);
    const auto errors = on_ranks(kRanks, [&](std::shared_ptr<Group> group) {
      save(memory_, "runs/a", part_of_model(next, 1, group->rank(), kRanks), *group, options());
    });
    EXPECT_THAT(errors, Each(IsEmpty()));
    expect_holds(memory_, "runs/a", next);
    EXPECT_THAT(memory_->list("runs"), testing::ElementsAre("a"));
  }

  // An Error, or of the rank itself what it had no memory to make one of.
  static void expect_is_error(const std::exception_ptr& thrown) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Error&) {
    } catch (const std::bad_alloc&) {
    }
  }

  const RandomModel model_ = small_model(1);
  std::shared_ptr<MemoryFileSystem> memory_;
};

// What no part of ferry throws, too.
TEST_F(RankFailure, WhateverAFileOperationThrows) {
  const FaultFileSystem::Fault faults[] = {
      [](const std::string& message) { throw std::runtime_error(message); },
      [](const std::string&) { throw std::bad_alloc(); },
      [](const std::string&) { throw 7; },
  };
  for (const auto& fault : faults) {
    for (int failing = 0; failing < kRanks; ++failing) {
      for (uint64_t n = 1;; ++n) {
        SCOPED_TRACE(testing::Message() << "rank " << failing << ", operation " << n);
        start_anew();
        const auto broken = std::make_shared<FaultFileSystem>(memory_, n, fault);
        const auto errors = on_ranks(kRanks, [&](std::shared_ptr<Group> group) {
          const std::shared_ptr<const FileSystem> own = memory_;
          save(group->rank() == failing ? broken : own, "runs/a", part(group->rank()), *group,
               options());
        });
        if (broken->operations() < n) {
          EXPECT_THAT(errors, Each(IsEmpty()));
          EXPECT_GT(n, 3u);
          break;
        }
        EXPECT_THAT(errors, Each(HasSubstr(fmt::format("rank {}", failing))));
        expect_recovers();
      }
    }
  }
}

TEST_F(RankFailure, OutOfMemoryAtAnyAllocation) {
  for (const Shortage kind : {Shortage::of_one, Shortage::of_all}) {
    for (int failing = 0; failing < kRanks; ++failing) {
      int64_t after = 0, step = 1;
      for (bool is_done = false; !is_done; after += step) {
        SCOPED_TRACE(testing::Message() << "rank " << failing << ", allocation " << after);
        start_anew();
        const auto errors = on_ranks(kRanks, [&](std::shared_ptr<Group> group) {
          const Snapshot own = part(group->rank());
          std::optional<ShortOfMemory> is_short;
          if (group->rank() == failing) is_short.emplace(kind, after);
          try {
            save(memory_, "runs/a", own, *group, options());
          } catch (const std::bad_alloc&) {  // an Error of its own would need memory
            is_short.reset();
            fail(ErrorKind::exhausted, "out of memory");
          }
          if (is_short) is_done = ShortOfMemory::is_near();
        });
        if (is_done) break;
        // Without an error where the allocation was but tried (sorting makes do without its buffer)
        // and where it failed while others learned that all is saved.
        EXPECT_THAT(errors, Each(AnyOf(IsEmpty(), HasSubstr("out of memory"))));
        const bool is_saved = memory_->status("runs/a").kind == PathKind::folder;
        EXPECT_TRUE(is_saved || std::ranges::none_of(errors, &std::string::empty));
        expect_recovers();
        if (HasFailure()) return;
        step = 1 + after / 100;
      }
      EXPECT_GT(after, 100);
    }
  }
}

// The threads of the savers, too.
TEST_F(RankFailure, OutOfMemoryInAnyThreadOfAsynchronousSavers) {
  for (const Shortage kind : {Shortage::of_one, Shortage::of_all}) {
    int64_t step = 1;
    bool has_struck = true;
    for (int64_t after = 0; has_struck; after += step) {
      SCOPED_TRACE(testing::Message() << "allocation " << after);
      start_anew();
      std::latch ready(kRanks + 1), done(kRanks), over(1);
      std::vector<std::exception_ptr> thrown(kRanks);
      std::vector<std::shared_ptr<Group>> groups = thread_groups(kRanks);
      std::vector<std::jthread> threads;
      for (size_t rank = 0; rank < groups.size(); ++rank) {
        threads.emplace_back([&, rank] {
          ready.arrive_and_wait();
          try {
            AsyncSaverOptions options;
            options.save = RankFailure::options();
            AsyncSaver saver(memory_, "runs/a", std::move(groups[rank]), options);
            saver.save(part(static_cast<int>(rank))).wait();
            saver.finish();
          } catch (...) {
            thrown[rank] = std::current_exception();
          }
          done.count_down();
          over.wait();
        });
      }
      {
        const AllShortOfMemory is_short(kind, after);
        ready.arrive_and_wait();
        done.wait();
        has_struck = is_short.has_struck();
      }
      over.count_down();
      threads.clear();
      for (const std::exception_ptr& each : thrown) {
        if (each) expect_is_error(each);
      }
      expect_recovers();
      if (HasFailure()) return;
      step = 1 + after / 50;
    }
  }
}

}  // namespace
}  // namespace ferry::test
