// Predicts the memory of a run before it is allocated.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/language/rank_model.h"

namespace ferry {

/// Bytes of one rank of a pipeline stage; all ranks of a stage use the same.
struct StagePlan {
  int64_t stage = 0;
  int64_t parameter_count = 0;
  ModelState::Bytes state;
  int64_t activations = 0;
  int64_t staging = 0;        // host memory for staging saves
  int64_t float8 = 0;         // FP8 copies of weights, and their scales
  int64_t copies = 0;         // of everything saved; if more than staging, saves go in pieces
  bool is_on_device = false;  // everything but staging is in device memory

  /// As shown in tables: with the FP8 copies.
  int64_t parameter_bytes() const { return state.parameters + float8; }
  /// Without the staging.
  int64_t held_bytes() const {
    return state.parameters + state.gradients + state.optimizer + activations + float8;
  }
  /// Bytes of the memory that the rank computes in.
  int64_t bytes() const { return held_bytes() + (is_on_device ? 0 : staging); }
};

/// The plans by stage, measured by running the ranks' own code over kernels that do nothing.
/// `path`: the checkpoint that the model's tensors come from, if any, as for RankModel.
/// `has_grouped_float8`: of the device's kernels.
std::vector<StagePlan> memory_plan(const TrainArguments& arguments, const RunModel& model,
                                   kernels::DeviceKind kind, const std::string& path = "",
                                   bool has_grouped_float8 = true);

/// A table, preceded by the model's parameters and operations per token.
std::string plan_text(const TrainArguments& arguments, const RunModel& model,
                      const std::vector<StagePlan>& plan);

/// How much host memory staging takes and whether saves go in pieces, given the arguments' limit
/// and `available` bytes for `ranks` ranks, equally many of each stage. Empty if nothing is staged.
std::string staging_plan_text(const std::vector<StagePlan>& plan, int64_t ranks,
                              uint64_t available);

/// exhausted if this many ranks of this process, equally many of each stage, need more memory than
/// the machine has. Staging does not count: without memory for it, saves go in pieces.
void check_machine_memory(const std::vector<StagePlan>& plan, int64_t ranks);

}  // namespace ferry
