// Whether to save and to end after an iteration: a function of what all ranks agreed on.
//
// Source: Megatron-LM megatron/training/training.py (checkpoint_and_decide_exit), swiss-ai/
// Megatron-LM (trigger files).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "ckpt/io/file_system.h"
#include "trainer/arguments/train_arguments.h"

namespace ferry {

/// What ranks know, each for itself; or_of() of them is what all know. All ranks must decide alike.
struct ExitSigns {
  bool signalled = false;     // the exit signal came
  bool out_of_time = false;   // --exit-duration-in-mins are over
  bool save_trigger = false;  // the file is there
  bool exit_trigger = false;
};
ExitSigns or_of(const ExitSigns& a, const ExitSigns& b);

enum class SaveKind : uint8_t { none, persistent, non_persistent };

struct ExitDecision {
  SaveKind save = SaveKind::none;
  bool exit = false;
  bool remove_save_trigger = false;  // by rank 0, when the save is done
  bool obeys_exit_trigger = false;   // rank 0 puts it away
  std::string why;                   // "exiting program at iteration 5"

  bool operator==(const ExitDecision&) const = default;
};

/// In this order: signal, --save-interval (else the non-persistent one), duration, --exit-interval
/// and phase transitions, trigger files (in iterations that are logged). A run that ends saves
/// first, but for the exit trigger. An exit trigger that is found where the run ends anyway is
/// obeyed, too. `minutes`: since it began, for the message.
ExitDecision decide_exit(const TrainArguments& arguments, int64_t iteration, const ExitSigns& signs,
                         double minutes);

/// --phase-transition-iterations. invalid for what is no list of numbers.
std::set<int64_t> phase_transitions(const std::string& text);

/// "[exiting program at iteration 5] datetime: 2026-11-22 06:27:21.619611 ", with its newline.
std::string datetime_line(const std::string& what, const std::string& date_and_time);

// Looks for what ends a run: a signal, the clock, files in the trigger folder.

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
