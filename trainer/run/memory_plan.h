// What a run will take, told before it is taken.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/run/rank_model.h"

namespace ferry {

/// Bytes of one rank of a pipeline stage; all ranks of a stage are alike.
struct StagePlan {
  int64_t stage = 0;
  int64_t parameter_count = 0;
  ModelState::Bytes state;
  int64_t activations = 0;
  int64_t staging = 0;  // copies that asynchronous saves write
  int64_t float8 = 0;   // copies of weights in FP8, and their scales

  /// As tables have them: with those copies.
  int64_t parameter_bytes() const { return state.parameters + float8; }
  int64_t bytes() const {
    return state.parameters + state.gradients + state.optimizer + activations + staging + float8;
  }
};

/// By stage. The ranks' own code tells it, over kernels that do nothing.
std::vector<StagePlan> memory_plan(const TrainArguments& arguments, const RunModel& model,
                                   kernels::DeviceKind kind);

/// A table, with the model's parameters and operations of a token above it.
std::string plan_text(const TrainArguments& arguments, const RunModel& model,
                      const std::vector<StagePlan>& plan);

/// exhausted when so many ranks of this process, equally many of each stage, take more memory than
/// the machine has.
void check_machine_memory(const std::vector<StagePlan>& plan, int64_t ranks);

}  // namespace ferry
