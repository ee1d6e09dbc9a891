// What Megatron-LM cannot hold of runs whose matrices have an optimizer of their own.
#pragma once

#include "ckpt/megatron/state/run_state.h"
#include "ops/reshard.h"

namespace ferry {

/// Refuses forms that Megatron-LM itself refuses for such a run, and warns where it loads one with
/// a flag alone. `remainders`: masters are written as such.
void check_matrices(const ReshardOptions& options, bool remainders, RunState& state);

}  // namespace ferry
