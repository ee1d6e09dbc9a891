// Arguments as Megatron-LM keeps them in checkpoints and prints them, and what it takes from a
// checkpoint's.
//
// Source: Megatron-LM megatron/training/arguments.py (_print_args), checkpointing.py
// (load_args_from_checkpoint, check_checkpoint_args), training.py (what joins args on the way).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/format/pickle/values/draft.h"
#include "trainer/arguments/train_arguments.h"

namespace ferry {

/// What joins the arguments when a checkpoint is saved.
struct SavedProgress {
  int64_t start_iteration = 0, iteration = 0;  // where this process began, and where it is
  double start_operations = 0;                 // floating-point ones before this process
  bool do_train = true, do_valid = false, do_test = false;
};

/// An argparse.Namespace with all that Megatron-LM's own has: read_run_arguments() and
/// read_arguments() give the model and its layout back. `arguments` are complete.
Value write_namespace(const TrainArguments& arguments, const SavedProgress& progress, Draft& draft);

/// The lines that name every argument and its value, each with its newline.
std::string arguments_banner(const TrainArguments& arguments);

/// --use-checkpoint-args: takes the model's arguments, before complete_arguments(). Numbers that
/// were given stay, as in Megatron-LM; flags are the checkpoint's. Parallel sizes only with
/// --use-mp-args-from-checkpoint-args. unsupported for a model that this trainer does not have;
/// `path` is for messages.
void adopt_checkpoint_arguments(TrainArguments& arguments, const Value& checkpoint,
                                const std::string& path, std::vector<std::string>& notes);

/// mismatch when the checkpoint's model is not that of `arguments`, naming both values.
void check_checkpoint_arguments(const TrainArguments& arguments, const Value& checkpoint,
                                const std::string& path);

/// Samples that the run had consumed; nothing where the checkpoint does not tell.
struct ConsumedSamples {
  std::optional<int64_t> train, skipped, valid;
};
ConsumedSamples read_consumed_samples(const Value& checkpoint);

}  // namespace ferry
