// Refuses combinations of reshard's options that the target, the source or Megatron-LM cannot have.
#pragma once

#include "ckpt/checkpoint.h"
#include "ckpt/megatron/state/run_state.h"
#include "ops/reshard.h"

namespace ferry {

/// Options that exclude each other, whatever the source.
void check_options(const ReshardOptions& options);

/// Options of layout and optimizer for a checkpoint that Megatron-LM did not write: it has neither.
void check_plain(const ReshardOptions& options, const Checkpoint& checkpoint);

/// For a run whose matrices have an optimizer of their own (Muon): refuses forms that Megatron-LM
/// refuses, and warns where it needs a flag to load one. `remainders`: masters are written as such.
void check_matrices(const ReshardOptions& options, bool remainders, RunState& state);

}  // namespace ferry
