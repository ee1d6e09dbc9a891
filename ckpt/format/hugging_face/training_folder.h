// What a training program saves next to the model, so that it can go on: Trainer's checkpoint-N of
// transformers, the folders of Accelerate's save_state().
//
//   trainer_state.json                        step, epoch, the log
//   optimizer.pt, optimizer.bin, optimizer_0/ the optimizer's state; the folder is a DCP
//   scheduler.pt, scheduler.bin, scaler.pt    learning rates, the scale of losses
//   rng_state.pth, rng_state_R.pth, random_states_R.pkl          of each rank
//   training_args.bin, sampler.bin, custom_checkpoint_N.pkl
//   pytorch_model_fsdp_0/, pytorch_model_fsdp.bin                the model, by FSDP
//   global_step10/, pytorch_model/            of DeepSpeed
//
// Source: transformers/trainer.py (_save_checkpoint), accelerate/checkpointing.py,
// accelerate/utils/fsdp_utils.py.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/io/file_system.h"
#include "ckpt/summary.h"

namespace ferry {

/// Reads names, and trainer_state.json. Nothing of it is an error: what cannot be read is reported
/// in `problem`.
TrainingFolder read_training_folder(const FileSystem& file_system, const std::string& folder);

/// The file or folder in such a folder that holds the model where FSDP wrote it in one piece or as
/// a DCP. Nothing when there is none. invalid when there are several.
std::optional<std::string> model_part(const FileSystem& file_system, const std::string& folder);

}  // namespace ferry
