// What a run will take, told before it is taken.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/language/rank_model.h"

namespace ferry {

/// Bytes of one rank of a pipeline stage; all ranks of a stage are alike.
struct StagePlan {
  int64_t stage = 0;
  int64_t parameter_count = 0;
  ModelState::Bytes state;
  int64_t activations = 0;
  int64_t staging = 0;        // host memory for copies of what is saved
  int64_t float8 = 0;         // copies of weights in FP8, and their scales
  int64_t copies = 0;         // of all that is saved; more than the staging: saves go in pieces
  bool is_on_device = false;  // all but the staging lies in the memory of a device

  /// As tables have them: with those copies.
  int64_t parameter_bytes() const { return state.parameters + float8; }
  /// Without the staging.
  int64_t held_bytes() const {
    return state.parameters + state.gradients + state.optimizer + activations + float8;
  }
  /// Of the memory that the rank computes in.
  int64_t bytes() const { return held_bytes() + (is_on_device ? 0 : staging); }
};

/// By stage. The ranks' own code tells it, over kernels that do nothing. `path`: of the checkpoint
/// that the model's tensors are those of, if any, as for RankModel.
std::vector<StagePlan> memory_plan(const TrainArguments& arguments, const RunModel& model,
                                   kernels::DeviceKind kind, const std::string& path = "");

/// A table, with the model's parameters and operations of a token above it.
std::string plan_text(const TrainArguments& arguments, const RunModel& model,
                      const std::vector<StagePlan>& plan);

/// What copies of saves take of the host's memory, and whether they go in pieces: as the arguments
/// bound them, or as `available` bytes for `ranks` ranks, equally many of each stage, do. Empty
/// where nothing is copied.
std::string staging_plan_text(const std::vector<StagePlan>& plan, int64_t ranks,
                              uint64_t available);

/// exhausted when so many ranks of this process, equally many of each stage, take more memory than
/// the machine has. Copies of saves do not count: where there is no room for them, saves go in
/// pieces.
void check_machine_memory(const std::vector<StagePlan>& plan, int64_t ranks);

}  // namespace ferry
