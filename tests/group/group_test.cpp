// What the operations of a group give, by ranks that are threads.
#include "ckpt/group/group.h"

#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <thread>

#include "tests/group/random_operations.h"
#include "tests/group/ranks.h"
#include "tests/random_cases.h"

namespace ferry::test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::array kSizes = {1, 2, 3, 4, 5, 7, 8, 13, 16, 17};

std::string text(int rank) { return std::string(static_cast<size_t>(rank), 'x') + "."; }

void expect_no_errors(int size, const std::function<void(Group&)>& work) {
  EXPECT_THAT(texts_of(on_ranks(size, work)), Each(IsEmpty())) << size << " ranks";
}

TEST(Group, ExchangeGivesAllToAll) {
  for (const int size : kSizes) {
    expect_no_errors(size, [&](Group& group) {
      const auto all = group.exchange(text(group.rank()));
      ASSERT_EQ(all.size(), static_cast<size_t>(size));
      for (int rank = 0; rank < size; ++rank) {
        EXPECT_EQ(all[static_cast<size_t>(rank)], text(rank));
      }
    });
  }
}

TEST(Group, GatherGivesAllToRank0) {
  for (const int size : kSizes) {
    expect_no_errors(size, [&](Group& group) {
      const auto all = group.gather(text(group.rank()));
      ASSERT_EQ(all.size(), static_cast<size_t>(group.rank() == 0 ? size : 0));
      for (size_t rank = 0; rank < all.size(); ++rank) {
        EXPECT_EQ(all[rank], text(static_cast<int>(rank)));
      }
    });
  }
}

TEST(Group, BroadcastGivesRank0sToAll) {
  for (const int size : kSizes) {
    expect_no_errors(size, [&](Group& group) {
      EXPECT_EQ(group.broadcast(group.rank() == 0 ? "rank 0's" : "mine"), "rank 0's");
      EXPECT_EQ(group.broadcast(group.rank() == 0 ? "" : "mine"), "");
    });
  }
}

TEST(Group, ScatterGivesEachItsPart) {
  for (const int size : kSizes) {
    expect_no_errors(size, [&](Group& group) {
      std::vector<std::string> parts;
      for (int rank = 0; group.rank() == 0 && rank < size; ++rank) parts.push_back(text(rank));
      EXPECT_EQ(group.scatter(parts), text(group.rank()));
    });
  }
}

TEST(Group, BarrierWaitsForAll) {
  for (const int size : kSizes) {
    std::atomic<int> here{0};
    expect_no_errors(size, [&](Group& group) {
      for (int round = 1; round <= 20; ++round) {
        ++here;
        group.barrier();
        EXPECT_GE(here, round * size);
        group.barrier();
      }
    });
  }
}

TEST(Group, SplitSortsByKeyThenRank) {
  expect_no_errors(7, [](Group& group) {
    const int rank = group.rank();
    // Odd ranks backwards; of the even ones 4 first, the others as they were; 6 is in none.
    const int color = rank == 6 ? -1 : rank % 2;
    const auto part = group.split(color, rank % 2 == 1 ? -rank : rank == 4 ? -1 : 0);
    EXPECT_EQ(part == nullptr, rank == 6);
    if (!part) return;
    const std::vector<std::string> all = part->exchange(std::to_string(rank));
    if (color == 1) {
      EXPECT_THAT(all, ElementsAre("5", "3", "1"));
    } else {
      EXPECT_THAT(all, ElementsAre("4", "0", "2"));
    }
    EXPECT_EQ(all[static_cast<size_t>(part->rank())], std::to_string(rank));
  });
}

TEST(Group, PartsAreUsedAlongsideTheWhole) {
  expect_no_errors(6, [](Group& group) {
    const auto pair = group.split(group.rank() / 2, 0);
    const auto same = group.split(0, -group.rank());
    std::jthread other([&] {
      for (int i = 0; i < 200; ++i) EXPECT_EQ(pair->exchange("p")[1], "p");
    });
    for (int i = 0; i < 200; ++i) {
      EXPECT_EQ(group.exchange(std::to_string(group.rank()))[5], "5");
      EXPECT_EQ(same->broadcast(std::to_string(group.rank())), "5");
    }
  });
}

// A rank that has done its part goes; the others still get what it gave.
TEST(Group, ARankMayLeaveAfterTheLastOperation) {
  for (int round = 0; round < 50; ++round) {
    auto groups = thread_groups(9);
    std::vector<std::jthread> threads;
    for (auto& group : groups) {
      threads.emplace_back([group = std::move(group), round]() mutable {
        EXPECT_EQ(group->exchange("a").size(), 9U);
        if (round % 2 == 0) group->gather("b");
        EXPECT_EQ(group->broadcast("c"), "c");
        group.reset();
      });
    }
  }
}

TEST(Group, ManyRanks) {
  expect_no_errors(200, [](Group& group) {
    const std::string own = std::to_string(group.rank());
    EXPECT_EQ(group.exchange(own)[199], "199");
    EXPECT_EQ(group.gather(own).size(), group.rank() == 0 ? 200U : 0U);
    EXPECT_EQ(group.broadcast(own), "0");
    const auto part = group.split(group.rank() % 3, group.rank());
    EXPECT_EQ(part->broadcast(own), std::to_string(group.rank() % 3));
    group.barrier();
  });
}

TEST(Group, RandomOperations) {
  for_random_cases(30, [](uint64_t seed) {
    expect_no_errors(static_cast<int>(seed % 12) + 1, [&](Group& group) {
      RandomOperations(20'000).run(group, static_cast<uint32_t>(seed), 30);
    });
  });
}

TEST(Group, OneRankNeedsNoOther) {
  const auto group = lone_group();
  EXPECT_THAT(group->exchange("a"), ElementsAre("a"));
  EXPECT_THAT(group->gather("b"), ElementsAre("b"));
  EXPECT_EQ(group->broadcast("c"), "c");
  EXPECT_EQ(group->scatter({"d"}), "d");
  group->barrier();
  EXPECT_EQ(group->split(-1, 0), nullptr);
  EXPECT_THAT(group->split(3, 0)->exchange("e"), ElementsAre("e"));
}

TEST(Group, NeedsARank) {
  EXPECT_THROW(thread_groups(0), Error);
  EXPECT_THROW(thread_groups(-1), Error);
}

}  // namespace
}  // namespace ferry::test
