// Whether to save and to end after an iteration: a function of what all ranks agreed on.
//
// Source: Megatron-LM megatron/training/training.py (checkpoint_and_decide_exit), swiss-ai/
// Megatron-LM (trigger files).
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>

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

}  // namespace ferry
