// A few threads for one piece of work.
#pragma once

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace ferry {

/// `wanted`, or one a core and at most 16 when it is not positive.
inline int thread_count(int wanted) {
  if (wanted > 0) return wanted;
  return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 16u));
}

/// Runs work(number) for all numbers below `threads`, each on a thread of its own (0: the
/// caller's), and returns when all have ended. Rethrows the first error.
template <typename Work>
void on_threads(int threads, const Work& work) {
  std::mutex mutex;
  std::exception_ptr error;
  const auto guarded = [&](int number) {
    try {
      work(number);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> pool;
    for (int i = 1; i < threads; ++i) pool.emplace_back(guarded, i);
    guarded(0);
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace ferry
