// Work on several threads whose results are used in the order of what they were made of.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace ferry::tool {

/// What may be under way at once. One thing may be, whatever its weight.
struct InOrderLimits {
  size_t things = 8;
  uint64_t weight = 64 << 20;
};

/// make(thing) on a thread of its own, until it is false; work(thing) on `workers` threads, each
/// with a function that begin() makes; use(result) on the caller's, in the order of the things.
/// weigh(thing) is what it counts of the limit. wait() is called by the caller at least five times
/// a second and may throw. The first error, in the order of the things, ends all and is thrown;
/// `stop` is set then.
template <typename Thing, typename Result>
class InOrder {
 public:
  using Work = std::function<Result(Thing&)>;

  InOrder(const InOrderLimits& limits, std::atomic<bool>& stop) : limits_(limits), stop_(stop) {}

  void run(int workers, const std::function<bool(Thing&)>& make,
           const std::function<uint64_t(const Thing&)>& weigh, const std::function<Work()>& begin,
           const std::function<void(Result&)>& use, const std::function<void()>& wait) {
    std::vector<std::jthread> threads;
    const EndAll end_all{*this};  // before the threads are joined
    try {
      threads.emplace_back([&] { make_all(make, weigh); });
      for (int i = 0; i < workers; ++i) threads.emplace_back([&] { work_on_all(begin); });
      use_all(use, wait);
    } catch (...) {
      end_now();
      throw;
    }
  }

 private:
  struct EndAll {
    InOrder& all;
    ~EndAll() { all.end_now(); }
  };
  struct Waiting {
    uint64_t number = 0, weight = 0;
    Thing thing;
  };
  struct Done {
    uint64_t weight = 0;
    std::optional<Result> result;
    std::exception_ptr error;
  };

  void end_now() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    stop_ = true;
    changed_.notify_all();
  }

  void make_all(const std::function<bool(Thing&)>& make,
                const std::function<uint64_t(const Thing&)>& weigh) {
    std::exception_ptr error;
    try {
      Thing thing;
      while (make(thing)) {
        const uint64_t weight = weigh(thing);
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] {
          return ended_ || under_way_ == 0 ||
                 (under_way_ < limits_.things && weight_ + weight <= limits_.weight);
        });
        if (ended_) return;
        ++under_way_;
        weight_ += weight;
        waiting_.push_back({made_++, weight, std::move(thing)});
        changed_.notify_all();
        thing = Thing();
      }
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    if (error) done_[made_++].error = error;
    all_made_ = true;
    changed_.notify_all();
  }

  void work_on_all(const std::function<Work()>& begin) {
    Work work;
    while (true) {
      Waiting waiting;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return ended_ || !waiting_.empty() || all_made_; });
        if (ended_ || waiting_.empty()) return;
        waiting = std::move(waiting_.front());
        waiting_.pop_front();
      }
      Done done{.weight = waiting.weight, .result = {}, .error = {}};
      try {
        if (!work) work = begin();
        done.result = work(waiting.thing);
      } catch (...) {
        done.error = std::current_exception();
      }
      const std::lock_guard lock(mutex_);
      done_[waiting.number] = std::move(done);
      changed_.notify_all();
    }
  }

  void use_all(const std::function<void(Result&)>& use, const std::function<void()>& wait) {
    for (uint64_t next = 0;; ++next) {
      Done done;
      {
        std::unique_lock lock(mutex_);
        const auto is_there = [&] { return done_.contains(next) || (all_made_ && next == made_); };
        while (!is_there()) {
          changed_.wait_for(lock, std::chrono::milliseconds(100));
          lock.unlock();
          wait();
          lock.lock();
        }
        if (!done_.contains(next)) return;
        done = std::move(done_.extract(next).mapped());
      }
      if (done.error) std::rethrow_exception(done.error);
      use(*done.result);
      wait();
      const std::lock_guard lock(mutex_);
      --under_way_;
      weight_ -= done.weight;
      changed_.notify_all();
    }
  }

  InOrderLimits limits_;
  std::atomic<bool>& stop_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Waiting> waiting_;
  std::map<uint64_t, Done> done_;
  uint64_t made_ = 0, weight_ = 0;
  size_t under_way_ = 0;
  bool all_made_ = false, ended_ = false;
};

}  // namespace ferry::tool
