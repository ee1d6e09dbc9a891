// The order in which a pipeline stage computes its micro-batches.
//
// Source: Narayanan et al. 2021 (1F1B and its interleaved form);
// megatron/core/pipeline_parallel/schedules.py.
#pragma once

#include <cstdint>
#include <vector>

namespace ferry {

struct PipelineAction {
  bool is_forward = true;
  int64_t chunk = 0;        // virtual stage of this rank
  int64_t micro_batch = 0;  // in the step
  bool operator==(const PipelineAction&) const = default;
};

/// The schedule of stage `stage` of `stages`, with `chunks` virtual stages each: one forward and
/// one backward pass in turn, after enough forward passes to keep the later stages busy. With
/// several chunks, mismatch unless the micro-batches are a multiple of the stages.
std::vector<PipelineAction> pipeline_schedule(int64_t stages, int64_t stage, int64_t chunks,
                                              int64_t micro_batches);

/// Forward passes only, for evaluation.
std::vector<PipelineAction> forward_schedule(int64_t stages, int64_t chunks, int64_t micro_batches);

/// The maximum number of micro-batches of a chunk between their forward and backward passes.
int64_t most_in_flight(const std::vector<PipelineAction>& schedule, int64_t chunk);

}  // namespace ferry
