// Megatron Bridge's checkpoints: torch_dist, with the run's configuration in run_config.yaml where
// Megatron-LM has arguments.
//
// Source: megatron/bridge/training/utils/checkpoint_utils.py, training/config.py (ConfigContainer),
// models/gpt_provider.py and models/gpt/model_config.py.
#pragma once

#include "ckpt/checkpoint.h"

namespace ferry {

/// Arguments, layout and writer of a checkpoint without arguments out of the run_config.yaml in its
/// folder. Leaves it as it is when there is none; a note tells when it cannot be read.
void fill_from_bridge_config(Checkpoint& checkpoint);

}  // namespace ferry
