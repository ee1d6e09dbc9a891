// Threads that wait for each other many times, and one that fails.
#include "trainer/communicator/thread_barrier.h"

#include <gmock/gmock.h>

#include <stdexcept>
#include <thread>

namespace ferry {
namespace {

constexpr size_t kThreads = 4;

// What each wrote before a barrier the others read before the next one.
TEST(ThreadBarrier, AllSeeWhatWasWrittenBefore) {
  constexpr int kTimes = 5000;
  ThreadBarrier barrier(kThreads);
  std::vector<int> written(kThreads);
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (size_t own = 0; own < kThreads; ++own) {
      threads.emplace_back([&, own] {
        for (int time = 1; time <= kTimes; ++time) {
          written[own] = time;
          barrier.arrive_and_wait(own, [] {});
          for (const int one : written) wrong += one != time;
          barrier.arrive_and_wait(own, [] {});
        }
      });
    }
  }
  EXPECT_EQ(wrong, 0);
  for (size_t thread = 0; thread < kThreads; ++thread) {
    EXPECT_EQ(barrier.arrivals(thread), 2U * kTimes);
    EXPECT_FALSE(barrier.has_left(thread));
  }
}

TEST(ThreadBarrier, WhoHearsOfAFailureLeaves) {
  ThreadBarrier barrier(kThreads);
  std::atomic<bool> has_failed = false;
  std::atomic<size_t> left = 0;
  {
    std::vector<std::jthread> threads;
    for (size_t own = 1; own < kThreads; ++own) {
      threads.emplace_back([&, own] {
        try {
          barrier.arrive_and_wait(own, [&] {
            if (has_failed) throw std::runtime_error("no more disk");
          });
        } catch (const std::runtime_error&) {
          left += barrier.has_left(own);
        }
      });
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    has_failed = true;
  }
  EXPECT_EQ(left, kThreads - 1);
  EXPECT_EQ(barrier.arrivals(0), 0U);
  EXPECT_FALSE(barrier.has_left(0));
}

// A failure may be known when the last one comes.
TEST(ThreadBarrier, NobodyGoesOnAfterAFailure) {
  ThreadBarrier barrier(1);
  EXPECT_THROW(barrier.arrive_and_wait(0, [] { throw std::runtime_error("no more disk"); }),
               std::runtime_error);
  EXPECT_TRUE(barrier.has_left(0));
}

}  // namespace
}  // namespace ferry
