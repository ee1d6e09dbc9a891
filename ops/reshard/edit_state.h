// What of a run's state goes into the new checkpoint, and under which names and types.
#pragma once

#include "ckpt/megatron/state/run_state.h"
#include "ops/reshard.h"

namespace ferry {

/// Does what the options only, drop, renames and dtype say. invalid when a pattern matches nothing,
/// or nothing is left.
void edit_state(RunState& state, const ReshardOptions& options);

}  // namespace ferry
