// DeepSpeed's checkpoints: the partitions of ZeRO's ranks, and universal ones.
//
//   latest                                              names the folder of the last save
//   global_step10/mp_rank_00_model_states.pt            the model, of stages 0 to 2
//   global_step10/zero_pp_rank_R_mp_rank_00_model_states.pt   a rank's part of it, of stage 3
//   global_step10/[bf16_]zero_pp_rank_R_mp_rank_00_optim_states.pt   rank R's part of the fp32
//                                                       parameters and the optimizer's state, flat
//   global_step10/zero/PARAMETER/{fp32,exp_avg,exp_avg_sq}.pt        of a universal checkpoint
//
// The model's tensors are the fp32 parameters that the optimizer keeps, where there are any;
// optimizer state is "optimizer.state.<exp_avg, ...>.<parameter>". Each is made of runs of elements
// of ranks' flat tensors; none is read.
//
// Source: deepspeed/utils/zero_to_fp32.py, runtime/zero/{stage_1_and_2,stage3}.py,
// runtime/bf16_optimizer.py, checkpoint/ds_to_universal.py.
#pragma once

#include <memory>
#include <string>

#include "ckpt/format/torch/ranked_checkpoint.h"
#include "ckpt/io/file_system.h"

namespace ferry {

/// True when the folder holds the files of a save ("global_step10", not the folder around it).
bool is_deepspeed_folder(const FileSystem& file_system, const std::string& folder);

/// not_found, naming them, when files of ranks are missing; corrupt when partitions and shapes
/// contradict each other; unsupported for models that tensor, pipeline or expert parallelism split.
RankedCheckpoint open_deepspeed(std::shared_ptr<const FileSystem> file_system,
                                const std::string& folder);

}  // namespace ferry
