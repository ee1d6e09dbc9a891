// Folders of other programs' runs, which hold a folder for every step that was saved.
//
//   RUN/latest                             DeepSpeed: the name of a folder next to it
//   RUN/latest_checkpointed_iteration.txt  verl: N of RUN/global_step_N, whose part actor/ has the
//                                          weights (and actor/dist_ckpt/ those of Megatron-LM)
//   RUN/checkpoint-N                       transformers' Trainer; checkpoint_N: Accelerate
//   RUN/step-N                             torchtitan, where the save is complete
//   RUN/step_N                             NeMo-RL, prime-rl; stepN: OLMo-core
//   RUN/epoch_E_step_N                     NeMo AutoModel
//   RUN/epE-baN                            Composer (llm-foundry), sharded
//
// Where no file names the step that was saved last, the largest number is the last.
//
// Source: deepspeed/runtime/engine.py (save_checkpoint), verl/utils/checkpoint/
// checkpoint_manager.py (find_latest_ckpt_path), transformers/trainer_utils.py
// (get_last_checkpoint), torchtitan/components/checkpointer/dcp.py (_find_load_step),
// nemo_rl/utils/checkpoint.py (get_latest_checkpoint_path), composer/callbacks/
// checkpoint_saver.py, olmo_core/train/checkpoint.py.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/io/file_system.h"

namespace ferry {

/// Where a step's checkpoint is.
struct StepFolder {
  std::string path;
  std::vector<std::string> other_parts;  // of the step, with checkpoints of their own ("critic")
};

/// The checkpoint in such a run: of step `step` (a number or a folder's name), or the last. Nothing
/// when `path` is no such run. not_found when the step is not there; invalid when there are several
/// and nothing says which.
std::optional<StepFolder> step_folder(const FileSystem& file_system, const std::string& path,
                                      std::string_view step);

/// Names of all steps of such a run, in the order of their numbers; none when it is none.
std::vector<std::string> step_names(const FileSystem& file_system, const std::string& path);

/// N of such a step's name; nothing for other names.
std::optional<int64_t> step_number(std::string_view name);

}  // namespace ferry
