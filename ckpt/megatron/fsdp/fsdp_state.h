// What is next to the tensors in Megatron-LM's checkpoints of PyTorch's own form, as parts of a
// run's state: every leaf of the state dict is an object of its own there.
#pragma once

#include "ckpt/checkpoint.h"
#include "ckpt/megatron/state/run_state.h"

namespace ferry {

/// Fills `state`, which has the checkpoint's tensors, arguments and iteration:
///   - the scheduler and other members of the common state, and random number states;
///   - parameter groups, of which each parameter has its own copy in fsdp_dtensor. corrupt where
///     those of one group differ in what makes it a group, else a warning;
///   - with Megatron-FSDP the model's fp32 tensors are the master weights: they become fp32 copies
///   of their
///     own, and the model's tensors take the type that the run computes in;
///   - arguments that say that the run was an FSDP one say that it is not.
void add_fsdp_state(const Checkpoint& checkpoint, RunState& state);

}  // namespace ferry
