// A barrier of threads which tolerates that a thread never arrives.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

namespace ferry {

/// Reusable: each thread counts its arrivals. What a thread did before arriving is visible to the
/// threads that it releases.
class ThreadBarrier {
 public:
  explicit ThreadBarrier(size_t threads) : seats_(threads) {}

  /// Called by thread `own`: returns when all have arrived as often as it has. While waiting it
  /// regularly calls `check`, and throws what that throws.
  void arrive_and_wait(size_t own, const std::function<void()>& check);

 private:
  struct alignas(64) Seat {
    std::atomic<uint64_t> arrivals{0};
  };
  std::vector<Seat> seats_;
};

}  // namespace ferry
