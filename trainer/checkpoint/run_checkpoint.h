// A run's checkpoints: what stands beside its tensors, and the way of both to disk and back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ckpt/checkpoint.h"
#include "ckpt/megatron/model/model_layout.h"
#include "ckpt/megatron/optimizer/buckets/model_buffers.h"
#include "ckpt/megatron/state/run_state.h"
#include "ckpt/memory/snapshot.h"
#include "ckpt/memory/stager.h"
#include "trainer/arguments/namespace.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/schedule/learning_rate.h"
#include "trainer/schedule/loss_scaler.h"

namespace ferry {

// What a run begins with, opened.

/// A checkpoint, and its tensors as the run has them.
struct Source {
  Checkpoint checkpoint;
  RunState state;  // of it
  /// Iteration 0 and a new optimizer follow: progress and optimizer state are not read.
  bool weights_only = false;
  ConsumedSamples consumed;  // by the run that saved it, where it tells
  /// Parameters whose names begin so are not asked of the checkpoint: they begin as in a run
  /// without one.
  std::vector<std::string> skipped_prefixes;
};

// Which tensors a model has, and what of them and of their optimizer state each rank keeps.

/// The same on all ranks.
struct StateLayout {
  ModelLayout layout;
  BufferChoice choice;
};

/// How far a run is.
struct RunProgress {
  int64_t iteration = 0;         // done
  int64_t optimizer_steps = 0;   // iterations that were not skipped
  int64_t schedule_samples = 0;  // that the learning rate has been stepped by
  double operations = 0;         // floating-point ones
  LossScaler scaler;
};

/// What all ranks save beside their tensors, as Megatron-LM saves it.
RunState state_to_save(const TrainArguments& arguments, const SavedProgress& saved,
                       const StateLayout& model, const RunProgress& progress,
                       const Schedule& schedule, const OptimizerOptions& optimizer);

/// The memory of this rank that is saved.
std::vector<ConstRegion> regions_to_save(const TrainArguments& arguments, const ModelState& memory);

/// What this rank saves. `state` is state_to_save() of all ranks alike.
Snapshot snapshot_of(const TrainArguments& arguments, const ModelState& memory, RunState state);
/// The same of `tensors`, which are regions_to_save().
Snapshot snapshot_of(const TrainArguments& arguments, std::vector<ConstRegion> tensors,
                     RunState state);

/// Throws, on all ranks alike, where a run cannot go on with the optimizer's state: it is not
/// there, is not that of its tensors, is of an optimizer that is not here, or cannot be told apart.
/// `state` is made of `checkpoint`.
void check_optimizer_state(const Checkpoint& checkpoint, const RunState& state);

enum class Load : uint8_t {
  all,           // weights and optimizer state
  weights,       // parameters; their fp32 copies are made of them
  main_weights,  // parameters, and their fp32 copies as exact as the checkpoint has them
};

/// Fills the rank's memory with what may have been saved at any layout; `state` is made of
/// `checkpoint`. not_found, naming the tensor, where the checkpoint lacks one.
/// By way of `stager` where memory is a device's; null: the host may write it as it is.
/// Tensors whose names begin with one of `skipped_prefixes` stay as they are.
void load_tensors(const Checkpoint& checkpoint, const RunState& state, Stager* stager,
                  ModelState& memory, Load what,
                  std::span<const std::string> skipped_prefixes = {});

/// What the checkpoint at `path` says of the run besides; `state` is state_of() it. Absent members
/// stay as `fresh` has them: a model alone begins anew.
RunProgress read_progress_of(const RunState& state, const std::string& path,
                             const TrainArguments& arguments, Schedule& schedule,
                             RunProgress fresh);

/// "--adam-beta2 0.999 (here 0.95)": what the run that saved `state` had other than `optimizer`.
/// Megatron-LM goes on with what was saved, whatever its arguments are.
std::vector<std::string> other_optimizer_arguments(const RunState& state,
                                                   const OptimizerOptions& optimizer);

// Where a run is.

/// The same on all ranks: with the tensors, all that a checkpoint is made of.
struct RunPosition {
  RunProgress progress;
  Schedule schedule;
  int64_t consumed = 0, skipped = 0;  // samples of training, and those of them that were left out
  int64_t consumed_valid = 0;
  int64_t last_saved = 0;  // iteration; where the run began, before the first save
};

}  // namespace ferry
