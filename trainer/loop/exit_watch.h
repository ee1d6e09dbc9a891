// Looks for what ends a run: a signal, the clock, files in the trigger folder.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "ckpt/io/file_system.h"
#include "trainer/loop/exit_decision.h"

namespace ferry {

/// From its construction to its destruction, the signal no longer ends the process but is
/// remembered, and other handlers of it rest. One object of a signal at a time in a process
/// (invalid otherwise). Asking is safe from any thread.
class SignalWatch {
 public:
  explicit SignalWatch(int signal);
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  bool came() const;

 private:
  int signal_;
  struct Old;
  std::unique_ptr<Old> old_;
};

/// What the name of an exit trigger gets at its end once it was obeyed: whoever started the run
/// (tools/launch/scripts/chain.sh) sees why it ended, and the next run does not end again.
inline constexpr std::string_view kObeyed = ".obeyed";

class ExitWatch {
 public:
  using Clock = std::chrono::steady_clock;

  /// The signal is watched where --exit-signal-handler asks for it. Other ranks of this process
  /// ask this object, too. References must outlive it.
  ExitWatch(const TrainArguments& arguments, const FileSystem& files,
            Clock::time_point start = Clock::now());

  /// What this process knows after an iteration. Trigger files are looked for in iterations that
  /// are logged.
  ExitSigns look(int64_t iteration, Clock::time_point now = Clock::now()) const;
  double minutes(Clock::time_point now = Clock::now()) const;
  /// Whether it knows so of the signal or the clock.
  bool is_to_end(Clock::time_point now = Clock::now()) const;

  /// On rank 0, when the save that it asked for is done. io where this user must not.
  void remove_save_trigger() const;
  /// On rank 0, of a run that ends for it: renames it, with kObeyed at its end. io where this user
  /// must not.
  void put_exit_trigger_away() const;

 private:
  bool is_there(const std::string& name) const;
  bool is_signalled() const;
  bool is_out_of_time(Clock::time_point now) const;

  const TrainArguments& arguments_;
  const FileSystem& files_;
  Clock::time_point start_;
  std::unique_ptr<SignalWatch> signal_;
};

}  // namespace ferry
