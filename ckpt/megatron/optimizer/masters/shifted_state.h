// Optimizer state that Megatron Core 0.15 to 0.19 stored in the wrong places.
//
// With a tensor a parameter (fully_reshardable) these releases gather a flat buffer without the
// padded ends of its buckets, but cut parameters out of it at their places in the padded buffer.
// What is stored of a parameter of a later bucket begins as many elements too far on as were left
// out before its bucket; at the buffer's end it is zeros. All of it is in the checkpoint but what
// was before the first parameter of such a bucket. It happens with several gradient buckets
// (--overlap-grad-reduce) whose ends are padded.
//
// Source: megatron/core/optimizer/distrib_optimizer.py (sharded_param_state_fully_reshardable,
// get_parameter_state_dp_zero) at core_v0.15.0 to core_v0.19.0.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ckpt/checkpoint.h"
#include "ckpt/engine/engine.h"
#include "ckpt/megatron/state/run_state.h"

namespace ferry {

/// Why the optimizer's state is known to be in the wrong places, as a sentence or two; empty when
/// it is not. Reads nothing where arguments and shapes rule it out, else some elements of a few
/// master weights and their weights.
std::string shifted_state_problem(const Checkpoint& checkpoint);

struct ShiftRepair {
  int64_t tensors = 0;  // of the optimizer's state, that were put together anew
  /// Elements that are nowhere in the checkpoint, by the model's tensor: their masters are made of
  /// the weights, their moments are zero.
  struct Lost {
    std::string tensor;
    int64_t elements = 0;
  };
  std::vector<Lost> lost;
};

/// Puts the optimizer's state where it belongs. `state` is that of `checkpoint`, as state_of() gave
/// it. Every master is then held against its weight, in `options`' memory. Does nothing where all
/// of them agree already; mismatch, naming a tensor, when they do not and cannot be made to.
ShiftRepair repair_shifted_state(const Checkpoint& checkpoint, const EngineOptions& options,
                                 RunState& state);

}  // namespace ferry
