#include "trainer/communicator/thread_barrier.h"

#include <chrono>
#include <thread>

namespace ferry {

// The others usually arrive within microseconds; otherwise yield the core.
void ThreadBarrier::arrive_and_wait(size_t own, const std::function<void()>& check) {
  constexpr int kYields = 1000, kLooks = 100;
  const uint64_t arrival = ++seats_[own].arrivals;
  for (const Seat& other : seats_) {
    for (int i = 0; other.arrivals < arrival; ++i) {
      if (i < kYields) {
        std::this_thread::yield();
        continue;
      }
      if (i % kLooks == 0) check();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

}  // namespace ferry
