// The state of the run that an opened checkpoint holds.
#pragma once

#include "ckpt/checkpoint.h"
#include "ckpt/megatron/run_state.h"

namespace ferry {

/// All that `checkpoint` holds, every tensor as it is. The checkpoint must outlive the result.
/// unsupported when it is none of Megatron-LM's (Hugging Face, lone files, other programs' DCP) or
/// was opened raw. Reads the objects, not the tensors.
RunState state_of(const Checkpoint& checkpoint);

}  // namespace ferry
