// A rank that fails, or goes away, ends the operations of all: none waits for ever.
#include <gmock/gmock.h>

#include <array>
#include <chrono>
#include <new>
#include <stdexcept>
#include <thread>

#include "tests/group/ranks.h"

namespace ferry::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

using Operation = std::function<void(Group&)>;

const std::vector<std::pair<std::string, Operation>>& operations() {
  static const std::vector<std::pair<std::string, Operation>> all = {
      {"exchange", [](Group& group) { group.exchange("bytes"); }},
      {"gather", [](Group& group) { group.gather("bytes"); }},
      {"broadcast", [](Group& group) { group.broadcast("bytes"); }},
      {"scatter",
       [](Group& group) {
         group.scatter(std::vector<std::string>(static_cast<size_t>(group.size()), "part"));
       }},
      {"barrier", [](Group& group) { group.barrier(); }},
      {"split", [](Group& group) { group.split(group.rank() % 2, 0); }},
  };
  return all;
}

// Ranks that others need nothing of learn of it when they call the next time.
[[noreturn]] void repeat(const Operation& operation, Group& group) {
  while (true) operation(group);
}

TEST(GroupAbort, EndsEachOperationOnAllRanks) {
  for (const auto& [name, operation] : operations()) {
    for (const int size : {2, 3, 6}) {
      for (int failing = 0; failing < size; ++failing) {
        const auto errors = on_ranks(size, [&, &operation = operation](Group& group) {
          operation(group);
          if (group.rank() == failing) group.abort(Error(ErrorKind::mismatch, "this is wrong"));
          repeat(operation, group);
        });
        EXPECT_THAT(texts_of(errors),
                    Each(fmt::format("mismatch: rank {}: this is wrong", failing)))
            << name << " " << size;
      }
    }
  }
}

TEST(GroupAbort, ReachesThoseWhoWaitInAnotherOperation) {
  for (const auto& [name, operation] : operations()) {
    const auto errors = on_ranks(7, [&, &operation = operation](Group& group) {
      const auto part = group.split(group.rank() % 2, 0);
      if (group.rank() == 3) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        part->abort(Error(ErrorKind::io, "no disk"));
      }
      group.rank() % 2 == 0 ? group.barrier() : repeat(operation, *part);
    });
    EXPECT_THAT(texts_of(errors), Each("io: rank 3: no disk")) << name;
  }
}

// The first group and all parts of it end, whichever it came from; the rank is the first group's.
TEST(GroupAbort, ReachesPartsAndWhatTheyArePartsOf) {
  for (int aborts_in = 0; aborts_in < 3; ++aborts_in) {
    for (int waits_in = 0; waits_in < 3; ++waits_in) {
      const auto errors = on_ranks(8, [&](Group& group) {
        const auto half = group.split(group.rank() / 4, 0);
        const auto quarter = half->split(half->rank() / 2, 0);
        const std::array<Group*, 3> groups = {&group, half.get(), quarter.get()};
        if (group.rank() == 5) groups[aborts_in]->abort(Error(ErrorKind::corrupt, "bad bytes"));
        repeat(operations()[0].second, *groups[waits_in]);
      });
      EXPECT_THAT(texts_of(errors), Each("corrupt: rank 5: bad bytes"));
    }
  }
}

TEST(GroupAbort, ByAnotherThreadOfTheRankThatWaits) {
  const auto groups = thread_groups(2);
  std::jthread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    groups[0]->abort(Error(ErrorKind::cancelled, "enough"));
  });
  try {
    groups[0]->barrier();
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "rank 0: enough");
  }
}

TEST(GroupAbort, TheFirstCounts) {
  const auto groups = thread_groups(2);
  groups[1]->abort(Error(ErrorKind::io, "first"));
  groups[0]->abort(Error(ErrorKind::internal, "second"));
  EXPECT_THAT(texts_of(on_ranks(groups, [](Group& group) { group.barrier(); })),
              Each("io: rank 1: first"));
}

TEST(GroupAbort, OfOneRank) {
  const auto group = lone_group();
  group->abort(Error(ErrorKind::io, "no disk"));
  for (const auto& [name, operation] : operations()) {
    EXPECT_THROW(operation(*group), Error) << name;
  }
}

TEST(GroupAbort, WithWhateverIsHandled) {
  const auto error_of = [](const std::function<void()>& work) {
    const auto group = lone_group();
    try {
      work();
    } catch (...) {
      abort_with_current_exception(*group);
    }
    return texts_of(on_ranks({group}, [](Group& rank) { rank.barrier(); }))[0];
  };
  EXPECT_EQ(error_of([] { fail(ErrorKind::io, "no disk"); }), "io: rank 0: no disk");
  EXPECT_EQ(error_of([] { throw std::bad_alloc(); }), "exhausted: rank 0: out of memory");
  EXPECT_EQ(error_of([] { throw std::logic_error("a bug"); }), "internal: rank 0: a bug");
  EXPECT_EQ(error_of([] { throw 7; }), "internal: rank 0: an unknown exception");
}

TEST(GroupAbort, PartsForOtherThanAllRanksAreInvalidOnAll) {
  const auto errors = on_ranks(5, [&](Group& group) {
    group.scatter(std::vector<std::string>(4));
    group.barrier();
  });
  EXPECT_THAT(texts_of(errors), Each(HasSubstr("4 parts are scattered to 5 ranks")));
  EXPECT_THAT(texts_of(errors), Each(HasSubstr("invalid: ")));
}

TEST(GroupAbort, RanksThatCallDifferentOperationsAreReported) {
  const auto errors = on_ranks(4, [&](Group& group) {
    group.barrier();
    group.rank() == 2 ? group.exchange("") : group.gather("");
    group.barrier();
  });
  EXPECT_THAT(texts_of(errors),
              Each(AllOf(HasSubstr("mismatch: "), HasSubstr("exchange() as operation 2"),
                         HasSubstr("gather() as operation 2"))));
}

// One less operation is noticed, too.
TEST(GroupAbort, ARankThatIsLateIsNoticed) {
  const auto errors = on_ranks(2, [&](Group& group) {
    if (group.rank() == 1) group.gather("a");
    for (int i = 0; i < 3; ++i) group.exchange("b");
  });
  EXPECT_THAT(texts_of(errors), Each(HasSubstr("mismatch: ")));
}

// Also those that need nothing of it themselves, but of a rank that does.
TEST(GroupAbort, ARankThatGoesAwayEndsEachOperation) {
  for (const auto& [name, operation] : operations()) {
    for (const int size : {2, 5, 8}) {
      for (int gone = 0; gone < size; ++gone) {
        auto groups = thread_groups(size);
        const auto errors = on_ranks(size, [&, &operation = operation](Group& place) {
          std::shared_ptr<Group> group = std::move(groups[static_cast<size_t>(place.rank())]);
          operation(*group);
          if (place.rank() == gone) return;
          // Who only sends to it may learn of it late, but learns of it.
          repeat(operation, *group);
        });
        for (int rank = 0; rank < size; ++rank) {
          EXPECT_EQ(text_of(errors[static_cast<size_t>(rank)]),
                    rank == gone ? "" : "cancelled: another rank of the group has ended")
              << name << " " << size << " " << gone;
        }
      }
    }
  }
}

// What a part's rank leaves ends that part alone.
TEST(GroupAbort, ARankThatLeavesAPartEndsThatPart) {
  const auto errors = on_ranks(4, [&](Group& group) {
    auto part = group.split(0, 0);
    if (group.rank() == 1) part.reset();
    if (part) {
      EXPECT_THROW(repeat(operations()[0].second, *part), Error);
    }
    EXPECT_EQ(group.exchange("still").size(), 4U);
  });
  EXPECT_THAT(texts_of(errors), Each(""));
}

}  // namespace
}  // namespace ferry::test
