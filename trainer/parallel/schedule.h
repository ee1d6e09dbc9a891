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
  int64_t micro_batch = 0;  // of the step
  bool operator==(const PipelineAction&) const = default;
};

/// Of stage `stage` of `stages`, with `chunks` virtual stages each. One forward and one backward
/// pass in turn, after as many forward passes as keep the later stages busy. With several chunks
/// the micro-batches must be a multiple of the stages (mismatch).
std::vector<PipelineAction> pipeline_schedule(int64_t stages, int64_t stage, int64_t chunks,
                                              int64_t micro_batches);

/// Forward passes alone: evaluation.
std::vector<PipelineAction> forward_schedule(int64_t stages, int64_t chunks, int64_t micro_batches);

/// How many micro-batches of a chunk are at most between their forward and backward passes.
int64_t most_in_flight(const std::vector<PipelineAction>& schedule, int64_t chunk);

}  // namespace ferry
