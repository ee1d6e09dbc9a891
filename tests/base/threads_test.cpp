#include "ckpt/base/threads.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>

namespace ferry {
namespace {

TEST(Threads, AreAsManyAsCoresThatMayBeUsed) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(thread_count(0), std::min(CPU_COUNT(&before), 64));
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(thread_count(0), 1);
  EXPECT_EQ(thread_count(-1), 1);
  EXPECT_EQ(thread_count(200), 200);
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

}  // namespace
}  // namespace ferry
