// Folders of FSDP ranks: model_world_size_W_rank_R.pt, one torch.save file a rank, as verl writes
// them, or pytorch_model_fsdp_0_rankR.bin, as Accelerate does (use_dcp=False). Sharded tensors are
// DTensors or, of FSDP 1 without a mesh, ShardedTensors; plain ones are the same on every rank.
//
// Source: verl/utils/checkpoint/fsdp_checkpoint_manager.py, accelerate/utils/fsdp_utils.py.
#pragma once

#include <memory>
#include <string>

#include "ckpt/format/torch/ranked_checkpoint.h"
#include "ckpt/io/file_system.h"

namespace ferry {

/// True when the folder has a file of such a name.
bool is_fsdp_folder(const FileSystem& file_system, const std::string& folder);

/// Joins the parts of all ranks, of tensors that several hold the first one's. not_found, naming
/// them, when files are missing that are needed; corrupt when ranks contradict each other; invalid
/// where the folder holds files of several numbers of ranks.
RankedCheckpoint open_fsdp_ranks(std::shared_ptr<const FileSystem> file_system,
                                 const std::string& folder);

}  // namespace ferry
