// A few threads for one piece of work.
#pragma once

#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace ferry {

/// `wanted`; when that is not positive, one for each core that this process may run on, and at most
/// 64: beyond it is the memory that limits, and each thread's share of a budget that shrinks.
int thread_count(int wanted);

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
