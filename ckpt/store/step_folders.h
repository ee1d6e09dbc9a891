// Folders of other programs' runs, which name the step that was saved last in files of their own.
//
//   RUN/latest                             DeepSpeed: the name of a folder beside it
//   RUN/checkpoint-N                       transformers' Trainer, of which the last counts
//   RUN/checkpoint_N                       Accelerate, likewise
//   RUN/step-N                             torchtitan, likewise, where the save is complete
//   RUN/latest_checkpointed_iteration.txt  verl: N of RUN/global_step_N, whose part actor/ has the
//                                          weights (and actor/dist_ckpt/ those of Megatron-LM)
//
// Source: deepspeed/runtime/engine.py (save_checkpoint), verl/utils/checkpoint/
// checkpoint_manager.py (find_latest_ckpt_path), transformers/trainer_utils.py
// (get_last_checkpoint), torchtitan/components/checkpointer/dcp.py (_find_load_step).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "ckpt/io/file_system.h"

namespace ferry {

/// The checkpoint in a run of those: of step `wanted` (a number or a folder's name), or the last.
/// Nothing when `path` is no such run. not_found when the step is not there; invalid when there are
/// several and nothing says which.
std::optional<std::string> step_folder(const FileSystem& file_system, const std::string& path,
                                       std::string_view wanted);

}  // namespace ferry
