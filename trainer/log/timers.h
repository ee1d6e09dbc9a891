// Named timers of a rank, and how all ranks' times are logged.
//
// Source: Megatron-LM megatron/core/timers.py, training/training.py (names by --timing-log-level).
#pragma once

#include <chrono>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ferry {

/// Not thread-safe. A timer above the requested level measures nothing.
class Timers {
 public:
  using Clock = std::chrono::steady_clock;

  /// --timing-log-level: 0: few, 1: parts of an iteration, 2: parts of each micro-batch's pass.
  explicit Timers(int level) : level_(level) {}

  void start(const std::string& name, int level = 2, Clock::time_point now = Clock::now());
  /// Does nothing if it is not running.
  void stop(const std::string& name, Clock::time_point now = Clock::now());
  /// Seconds since the last reset, also of a running timer, which keeps running.
  double seconds(const std::string& name, bool reset = true, Clock::time_point now = Clock::now());

 private:
  struct Timer {
    std::chrono::duration<double> elapsed{0};
    Clock::time_point started;
    bool runs = false;
  };
  int level_;
  std::map<std::string, Timer, std::less<>> timers_;
};

/// Runs a timer for the duration of a scope.
class TimerScope {
 public:
  TimerScope(Timers& timers, std::string name, int level)
      : timers_(timers), name_(std::move(name)) {
    timers_.start(name_, level);
  }
  ~TimerScope() { timers_.stop(name_); }
  TimerScope(const TimerScope&) = delete;
  TimerScope& operator=(const TimerScope&) = delete;

 private:
  Timers& timers_;
  std::string name_;
};

/// Names that are logged at a level, in order.
std::vector<std::string_view> timers_of_level(int level);

/// A timer's seconds on each rank; 0 if it did not run there.
struct RankTimes {
  std::string name;
  std::vector<double> seconds;
};
/// Lines for --timing-log-option max, minmax or all; times are divided by `iterations`. Empty when
/// no timer ran.
std::string timer_lines(std::span<const RankTimes> times, std::string_view option,
                        int64_t iterations);

}  // namespace ferry
