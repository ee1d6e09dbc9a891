// Threads that wait for each other many times, and one that fails.
#include "trainer/communicator/thread_barrier.h"

#include <gmock/gmock.h>

#include <chrono>
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
}

TEST(ThreadBarrier, WhoeverWaitsHearsOfAFailure) {
  ThreadBarrier barrier(kThreads);
  std::atomic<bool> has_failed = false;
  std::atomic<size_t> heard = 0;
  {
    std::vector<std::jthread> threads;
    for (size_t own = 1; own < kThreads; ++own) {
      threads.emplace_back([&, own] {
        try {
          barrier.arrive_and_wait(own, [&] {
            if (has_failed) throw std::runtime_error("no more disk");
          });
        } catch (const std::runtime_error&) {
          ++heard;
        }
      });
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    has_failed = true;
  }
  EXPECT_EQ(heard, kThreads - 1);
}

}  // namespace
}  // namespace ferry
