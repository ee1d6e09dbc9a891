#include "tools/train/rank_threads.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <thread>

#include "ckpt/base/error.h"

namespace ferry::tool {
namespace {

std::set<int> cores(int from, int count) {
  std::set<int> cores;
  for (int core = from; core < from + count; ++core) cores.insert(core);
  return cores;
}

TEST(RankThreads, CoresAreShared) {
  const std::vector<ProcessCores> unbound = {
      {"a", cores(0, 16)}, {"a", cores(0, 16)}, {"a", cores(0, 16)}, {"b", cores(0, 8)}};
  EXPECT_EQ(share_of_cores(unbound, 0), 5);
  EXPECT_EQ(share_of_cores(unbound, 3), 8);
  const std::vector<ProcessCores> bound = {
      {"a", cores(0, 8)}, {"a", cores(0, 8)}, {"a", cores(8, 8)}, {"a", cores(8, 1)}};
  EXPECT_EQ(share_of_cores(bound, 1), 4);
  EXPECT_EQ(share_of_cores(bound, 2), 7);
  EXPECT_EQ(share_of_cores(bound, 3), 1);
  const std::vector<ProcessCores> crowded(4, {"a", cores(0, 2)});
  EXPECT_EQ(share_of_cores(crowded, 0), 1);
}

TEST(RankThreads, TheEnvironmentSaysOtherwise) {
  const auto alone = lone_group();
  EXPECT_EQ(rank_threads(*alone, 4, "3"), 3);
  EXPECT_EQ(rank_threads(*alone, 4, "5,2"), 5);
  const int all = static_cast<int>(process_cores().cores.size());
  EXPECT_EQ(rank_threads(*alone, 1, nullptr), all);
  EXPECT_EQ(rank_threads(*alone, 1, ""), all);
  EXPECT_EQ(rank_threads(*alone, 2 * all, nullptr), 1);
  for (const char* nonsense : {"0", "-1", "two", "2x", "1025", ",4"}) {
    try {
      rank_threads(*alone, 1, nonsense);
      ADD_FAILURE() << nonsense;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid);
      EXPECT_THAT(error.what(), testing::HasSubstr(nonsense));
    }
  }
}

TEST(RankThreads, ProcessesAgree) {
  const auto groups = thread_groups(2);
  int threads[2] = {0, 0};
  {
    std::jthread other([&] { threads[1] = rank_threads(*groups[1], 1, nullptr); });
    threads[0] = rank_threads(*groups[0], 1, nullptr);
  }
  const int half = std::max(1, static_cast<int>(process_cores().cores.size()) / 2);
  EXPECT_THAT(threads, testing::Each(half));
}

}  // namespace
}  // namespace ferry::tool
