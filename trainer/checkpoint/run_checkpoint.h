// A run's checkpoints: its progress and its tensors, and how both are saved and loaded.
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
#include "ckpt/memory/region.h"
#include "ckpt/memory/save.h"
#include "trainer/arguments/namespace.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/schedule/learning_rate.h"
#include "trainer/schedule/loss_scaler.h"

namespace ferry {

// What a run starts from, opened.

/// A checkpoint and its state as the run needs it.
struct Source {
  Checkpoint checkpoint;
  RunState state;  // of the checkpoint
  /// Start at iteration 0 with a new optimizer: progress and optimizer state are not read.
  bool weights_only = false;
  ConsumedSamples consumed;  // by the run that saved it, if known
  /// Parameters with these name prefixes are not loaded but initialized as in a new run.
  std::vector<std::string> skipped_prefixes;
};

// The tensors of a model, and which parts of them and of their optimizer state each rank keeps.

/// The same on all ranks.
struct StateLayout {
  ModelLayout layout;
  BufferChoice choice;
};

/// Progress of a run.
struct RunProgress {
  int64_t iteration = 0;         // completed
  int64_t optimizer_steps = 0;   // iterations that were not skipped
  int64_t schedule_samples = 0;  // that the learning rate schedule has advanced by
  double operations = 0;         // floating-point operations
  LossScaler scaler;
};

/// Everything but tensors that a checkpoint contains, in Megatron-LM's form; the same on all ranks.
RunState state_to_save(const TrainArguments& arguments, const SavedProgress& saved,
                       const StateLayout& model, const RunProgress& progress,
                       const Schedule& schedule, const OptimizerOptions& optimizer);

/// The memory that this rank saves.
std::vector<ConstRegion> regions_to_save(const TrainArguments& arguments, const ModelState& memory);

/// The snapshot that this rank saves. `state` is state_to_save(), the same on all ranks.
Snapshot snapshot_of(const TrainArguments& arguments, const ModelState& memory, RunState state);
/// The same for `tensors` from regions_to_save().
Snapshot snapshot_of(const TrainArguments& arguments, std::vector<ConstRegion> tensors,
                     RunState state);

/// Throws, on all ranks alike, if a run cannot resume with the optimizer state: it is missing,
/// misplaced, of an unsupported optimizer, or ambiguous. `state` was read from `checkpoint`.
void check_optimizer_state(const Checkpoint& checkpoint, const RunState& state);

enum class Load : uint8_t {
  all,           // weights and optimizer state
  weights,       // parameters; master weights are copied from them
  main_weights,  // parameters and, as exact as stored, master weights
};

/// Loads a checkpoint of any layout into this rank's memory; `state` was read from `checkpoint`.
/// not_found, naming the tensor, if the checkpoint lacks one. Device memory is written through
/// `stager`; null if the host can write it directly. Tensors with a prefix of `skipped_prefixes`
/// are left unchanged.
void load_tensors(const Checkpoint& checkpoint, const RunState& state, Stager* stager,
                  ModelState& memory, Load what,
                  std::span<const std::string> skipped_prefixes = {});

/// The progress stored in the checkpoint at `path`, read from its `state`. Missing members keep the
/// values of `fresh`, so that a checkpoint of a model alone starts a new run.
RunProgress read_progress_of(const RunState& state, const std::string& path,
                             const TrainArguments& arguments, Schedule& schedule,
                             RunProgress fresh);

/// "--adam-beta2 0.999 (here 0.95)": optimizer arguments of the run that saved `state` which differ
/// from `optimizer`. (Megatron-LM uses the saved ones, whatever its arguments are.)
std::vector<std::string> other_optimizer_arguments(const RunState& state,
                                                   const OptimizerOptions& optimizer);

// Position of a run.

/// The same on all ranks. Together with the tensors, everything in a checkpoint.
struct RunPosition {
  RunProgress progress;
  Schedule schedule;
  int64_t consumed = 0, skipped = 0;  // training samples, and how many of them were skipped
  int64_t consumed_valid = 0;
  int64_t last_saved = 0;  // iteration; initially where the run started
};

}  // namespace ferry
