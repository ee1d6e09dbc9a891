// Checkpoints of Megatron-LM's format without its arguments, as verl saves them (actor/dist_ckpt):
// a config.json describes the model, objects and files the ranks.
//
// Source: verl/utils/checkpoint/megatron_checkpoint_manager.py.
#pragma once

#include <string>
#include <vector>

#include "ckpt/checkpoint.h"
#include "ckpt/megatron/state/run_state.h"

namespace ferry {

/// Gives the checkpoint, for which lacks_arguments() holds, those of the config.json in
/// `config_folder` (or next to it, find_config_folder()), and reads its optimizer's state, whose
/// layout they give, again. As arguments_of_config().
void give_arguments(Checkpoint& checkpoint, const std::string& config_folder,
                    std::vector<std::string>& warnings);

/// What verl calls otherwise in the state of such a run: its lr_scheduler is opt_param_scheduler.
void rename_members(RunState& state);

}  // namespace ferry
