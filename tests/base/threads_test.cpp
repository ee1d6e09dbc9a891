#include "ckpt/base/threads.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

// True once `flag` is set; false when that takes so long that it never will be.
bool is_seen(const std::atomic<bool>& flag) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!flag && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  return flag;
}

TEST(Threads, SeeThatOneOfThemFailed) {
  for (const int failing : {0, 2}) {
    std::atomic<int> at_work{0}, seen{0};
    std::atomic<bool> all{false};
    try {
      on_threads(4, [&](int number, const std::atomic<bool>& stop) {
        EXPECT_FALSE(stop);
        if (++at_work == 4) all = true;
        EXPECT_TRUE(is_seen(all));
        if (number == failing) fail(ErrorKind::io, "the first error");
        if (is_seen(stop)) ++seen;
        fail(ErrorKind::cancelled, "an error that comes of it");
      });
      ADD_FAILURE() << "no error was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()), "the first error");
    }
    EXPECT_EQ(seen, 3);
  }
}

TEST(Threads, ThatWaitAreWokenOnce) {
  std::atomic<int> calls{0};
  std::atomic<bool> woken{false};
  const auto work = [&](int number, const std::atomic<bool>&) {
    EXPECT_TRUE(number == 1 || is_seen(woken));
    fail(ErrorKind::io, "thread {}", number);
  };
  const auto wake = [&] {
    ++calls;
    woken = true;
  };
  try {
    on_threads(3, work, wake);
    ADD_FAILURE() << "no error was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), "thread 1");
  }
  EXPECT_EQ(calls, 1);
}

TEST(Threads, AreNotStoppedWithoutAnError) {
  std::atomic<int> done{0};
  on_threads(3, [&](int, const std::atomic<bool>& stop) {
    if (!stop) ++done;
  });
  EXPECT_EQ(done, 3);
}

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
