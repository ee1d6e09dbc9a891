// A barrier of threads that one of them may never come to.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

namespace ferry {

/// Used again and again: each thread counts its arrivals. What a thread did before it arrived is
/// seen by those whom it let go on.
class ThreadBarrier {
 public:
  explicit ThreadBarrier(size_t threads) : seats_(threads) {}

  /// By thread `own`: returns when all have arrived as often as it has now. It calls `check` now
  /// and then while it waits, and throws what that throws.
  void arrive_and_wait(size_t own, const std::function<void()>& check);

 private:
  struct alignas(64) Seat {
    std::atomic<uint64_t> arrivals{0};
  };
  std::vector<Seat> seats_;
};

}  // namespace ferry
