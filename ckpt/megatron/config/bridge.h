// Megatron Bridge's checkpoints: torch_dist, with the run's configuration in run_config.yaml where
// Megatron-LM has arguments.
//
// Source: megatron/bridge/training/utils/checkpoint_utils.py, training/checkpointing.py
// (save_checkpoint), training/config.py (ConfigContainer), models/gpt_provider.py and
// models/gpt/model_config.py.
#pragma once

#include <string>

#include "ckpt/checkpoint.h"

namespace ferry {

/// Sets arguments, layout and writer of a checkpoint without arguments from the run_config.yaml in
/// its folder. Leaves it as it is when there is none; adds a note when it cannot be read.
///
/// Rows of gate and up that alternate in memory (moe_mlp_glu_interleave_size and the like) are one
/// after the other in the files, so that the arguments say nothing of them; the optimizer's state
/// is as it was in memory. Returns why that cannot be taken, fit for Checkpoint::optimizer_problem;
/// empty when it can.
std::string fill_from_bridge_config(Checkpoint& checkpoint);

}  // namespace ferry
