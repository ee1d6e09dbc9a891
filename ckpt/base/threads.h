// A few threads for one piece of work.
#pragma once

#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace ferry {

/// `wanted`; when that is not positive, one for each core that this process may run on, and at most
/// 64: beyond it is the memory that limits, and each thread's share of a budget that shrinks.
int thread_count(int wanted);

/// Runs work(number, stop) for the numbers below `threads`, each on a thread of its own (0: the
/// caller's), and returns when all have ended. Rethrows the first error. Where the system has no
/// more threads to give, the highest numbers are left out: work must take what there is to do from
/// a place that all share, until nothing is left.
///
/// `stop` is a const std::atomic<bool>& that is set at the first error: work looks at it before
/// each step, so that nobody waits for the rest to be done before the error is told. `wake` is
/// called once after that, for those of the others who wait for something; it must not throw.
template <typename Work, typename Wake>
void on_threads(int threads, const Work& work, const Wake& wake) {
  std::mutex mutex;
  std::exception_ptr error;
  std::atomic<bool> stop{false};
  const auto guarded = [&](int number) {
    try {
      work(number, std::as_const(stop));
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (error) return;
      error = std::current_exception();
      stop = true;
      wake();
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

/// The same, of work that waits for nothing.
template <typename Work>
void on_threads(int threads, const Work& work) {
  on_threads(threads, work, [] {});
}

}  // namespace ferry
