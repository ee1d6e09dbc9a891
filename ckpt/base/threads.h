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

/// `requested`; when that is not positive, one for each core that this process may run on, at most
/// 64: beyond that memory bandwidth is the limit, and each thread's share of the budget shrinks.
int thread_count(int requested);

/// Runs work(number, stop) for the numbers below `threads`, each on a thread of its own (0: the
/// caller's), and returns when all have ended. Rethrows the first error. Where the system has no
/// more threads to give, the highest numbers are left out: work must take what there is to do from
/// a place that all share, until nothing is left.
///
/// `stop` is a const std::atomic<bool>& that is set at the first error: work checks it before each
/// step, so that the error is reported without waiting for the rest. `wake` is called once after
/// that, to wake threads that wait for something; it must not throw.
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
