// Brings a run's state to another parallel layout: all of it but where bytes go.
#pragma once

#include <cstdint>
#include <optional>

#include "ckpt/megatron/model/target_options.h"
#include "ckpt/megatron/state/run_state.h"

namespace ferry {

/// Sets the target's arguments (apply_target), pads the vocabulary for its tensor ranks (`divisor`
/// replaces make_vocab_size_divisible_by), gives experts an optimizer of their own or takes it away
/// as the target's expert layout asks for, and leaves out the state of rerun checks when it is for
/// other ranks, as Megatron-LM does. Random number states are kept (see RngState). Throws as
/// apply_target.
void retarget(RunState& state, const ParallelTarget& target,
              std::optional<int64_t> divisor = std::nullopt);

}  // namespace ferry
