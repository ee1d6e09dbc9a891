// Arguments as Megatron-LM stores them in checkpoints and prints them, and what it takes over from
// a checkpoint's arguments.
//
// Source: Megatron-LM megatron/training/arguments.py (_print_args), checkpointing.py
// (load_args_from_checkpoint, check_checkpoint_args), training.py (what is added to args later).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/format/pickle/values/draft.h"
#include "trainer/arguments/train_arguments.h"

namespace ferry {

/// What is added to the arguments when a checkpoint is saved.
struct SavedProgress {
  int64_t start_iteration = 0, iteration = 0;  // where this process started, and where it is now
  double start_operations = 0;                 // floating-point operations before this process
  bool do_train = true, do_valid = false, do_test = false;
};

/// An argparse.Namespace with every attribute that Megatron-LM's has: read_run_arguments() and
/// read_arguments() return the model and its layout. `arguments` must be complete.
Value write_namespace(const TrainArguments& arguments, const SavedProgress& progress, Draft& draft);

/// The lines that list every argument and its value, each ending in a newline.
std::string arguments_banner(const TrainArguments& arguments);

/// --use-checkpoint-args: takes over the model's arguments, before complete_arguments(). As in
/// Megatron-LM, numbers that were given stay and boolean flags are the checkpoint's. Parallel sizes
/// only with --use-mp-args-from-checkpoint-args. unsupported for a model that this trainer does not
/// support; `path` is for messages.
void adopt_checkpoint_arguments(TrainArguments& arguments, const Value& checkpoint,
                                const std::string& path, std::vector<std::string>& notes);

/// mismatch, naming both values, if the checkpoint's model is not that of `arguments`.
void check_checkpoint_arguments(const TrainArguments& arguments, const Value& checkpoint,
                                const std::string& path);

/// Samples that the run had consumed; empty where the checkpoint does not say.
struct ConsumedSamples {
  std::optional<int64_t> train, skipped, valid;
};
ConsumedSamples read_consumed_samples(const Value& checkpoint);

}  // namespace ferry
