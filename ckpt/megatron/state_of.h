// The state of the run that an opened checkpoint holds.
#pragma once

#include "ckpt/checkpoint.h"
#include "ckpt/megatron/state/run_state.h"

namespace ferry {

/// All that `checkpoint` holds, every tensor as it is.
/// unsupported when it is none of Megatron-LM's (Hugging Face, lone files, other programs' DCP) or
/// was opened raw. Reads the objects, not the tensors.
RunState state_of(const Checkpoint& checkpoint);

/// True where state_of() knows a run's state.
bool holds_run(const Checkpoint& checkpoint);

/// The tensors and objects of any checkpoint under their own names, without a meaning. What it can
/// be written as is a plain DCP (torch_dist/plain_dcp_writer.h).
RunState plain_state_of(const Checkpoint& checkpoint);

}  // namespace ferry
