// Decides whether to save and to stop after an iteration, as a function of what all ranks agreed
// on.
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

/// What a rank has observed. Ranks combine these by logical or, so that all decide alike.
struct ExitSigns {
  bool signalled = false;     // the exit signal was received
  bool out_of_time = false;   // --exit-duration-in-mins are over
  bool save_trigger = false;  // the file exists
  bool exit_trigger = false;
};
ExitSigns or_of(const ExitSigns& a, const ExitSigns& b);

enum class SaveKind : uint8_t { none, persistent, non_persistent };

struct ExitDecision {
  SaveKind save = SaveKind::none;
  bool exit = false;
  bool remove_save_trigger = false;  // by rank 0, after the save
  bool obeys_exit_trigger = false;   // rank 0 renames it
  std::string why;                   // "exiting program at iteration 5"

  bool operator==(const ExitDecision&) const = default;
};

/// Checks in this order: signal, --save-interval (otherwise the non-persistent one), duration,
/// --exit-interval and phase transitions, trigger files (in logged iterations). A run saves before
/// it stops, except for the exit trigger. An exit trigger that is found when the run stops anyway
/// is also consumed. `minutes`: since the start, for the message.
ExitDecision decide_exit(const TrainArguments& arguments, int64_t iteration, const ExitSigns& signs,
                         double minutes);

/// --phase-transition-iterations. invalid unless it is a list of numbers.
std::set<int64_t> phase_transitions(const std::string& text);

/// "[exiting program at iteration 5] datetime: 2026-11-22 06:27:21.619611 ", with its newline.
std::string datetime_line(const std::string& what, const std::string& date_and_time);

// Watches for what stops a run: a signal, the clock, files in the trigger folder.

/// During its lifetime the signal is recorded instead of ending the process, and other handlers are
/// replaced. One object per signal at a time in a process (otherwise invalid). Queries are
/// thread-safe.
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

/// Suffix that a consumed exit trigger's file is renamed with: the script that started the run
/// (tools/launch/scripts/chain.sh) sees why it stopped, and the next run does not stop again.
inline constexpr std::string_view kObeyed = ".obeyed";

class ExitWatch {
 public:
  using Clock = std::chrono::steady_clock;

  /// Watches the signal with --exit-signal-handler. Shared by the ranks of this process. References
  /// must outlive it.
  ExitWatch(const TrainArguments& arguments, const FileSystem& files,
            Clock::time_point start = Clock::now());

  /// What this process has observed after an iteration. Trigger files are checked in logged
  /// iterations.
  ExitSigns observe(int64_t iteration, Clock::time_point now = Clock::now()) const;
  double minutes(Clock::time_point now = Clock::now()) const;
  /// Whether the signal or the clock asks to stop.
  bool is_to_end(Clock::time_point now = Clock::now()) const;

  /// Called on rank 0 after the requested save. io without permission.
  void remove_save_trigger() const;
  /// Called on rank 0 of a run that stops because of it: renames it with the suffix kObeyed. io
  /// without permission.
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
