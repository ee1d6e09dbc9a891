// Folders of FSDP ranks: model_world_size_W_rank_R.pt, one torch.save file a rank, as verl writes
// them, or pytorch_model_fsdp_0_rankR.bin, as Accelerate does (use_dcp=False). Sharded tensors are
// DTensors or, of FSDP 1 without a mesh, ShardedTensors; plain ones are the same on every rank.
//
// Source: verl/utils/checkpoint/fsdp_checkpoint_manager.py, accelerate/utils/fsdp_utils.py.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ckpt/core/catalog.h"
#include "ckpt/format/torch/optimizer_facts.h"
#include "ckpt/io/file_system.h"

namespace ferry {

struct FsdpRanks {
  /// Of the model; the optimizer's are "optimizer.state.<exp_avg, ...>.<parameter>".
  Catalog catalog;
  int64_t world_size = 0;
  OptimizerFacts optimizer;       // of the first rank
  std::string optimizer_problem;  // why the optimizer's state is left out; empty: it is not
  std::vector<std::string> notes;
};

/// True when a file of such a name lies in the folder.
bool is_fsdp_folder(const FileSystem& file_system, const std::string& folder);

/// Joins the parts of all ranks, of tensors that several hold the first one's. not_found, naming
/// them, when files are missing that are needed; corrupt when ranks contradict each other; invalid
/// where the folder holds files of several numbers of ranks.
FsdpRanks open_fsdp_ranks(std::shared_ptr<const FileSystem> file_system, const std::string& folder);

}  // namespace ferry
