// A few threads for one piece of work.
#pragma once

#include <algorithm>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace ferry {

/// `wanted`, or one a core and at most 16 when it is not positive.
inline int thread_count(int wanted) {
  if (wanted > 0) return wanted;
  return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 16u));
}

/// Runs work(number) for the numbers below `threads`, each on a thread of its own (0: the
/// caller's), and returns when all have ended. Rethrows the first error. Where the system has no
/// more threads to give, the highest numbers are left out: work must take what there is to do from
/// a place that all share, until nothing is left.
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
    try {
      for (int i = 1; i < threads; ++i) pool.emplace_back(guarded, i);
    } catch (const std::system_error&) {
    }
    guarded(0);
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace ferry
