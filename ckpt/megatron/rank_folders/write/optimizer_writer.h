// The optimizer's state of legacy rank folders: what optimizer.h and layer_wise.h read.
//
// Source: megatron/core/optimizer/distrib_optimizer.py (state_dict, get_parameter_state_dp_zero),
// optimizer.py (state_dict of every class, save_parameter_state), torch/optim/optimizer.py.
#pragma once

#include <vector>

#include "ckpt/core/plan.h"
#include "ckpt/format/torch/torch_file_plan.h"
#include "ckpt/megatron/rank_folders/write/target.h"

namespace ferry {

/// "optimizer" of a rank's model file where the distributed optimizer has its tensors in a file of
/// their own: hyperparameters and step.
Value flat_optimizer_value(TorchFilePlan& file, const LegacyTarget& target);

/// Adds that file, <folder>/distrib_optim.pt, where the folder's rank is to have one. `by_ranks`:
/// in chunks of the ranks that hold them.
void add_flat_optimizer_file(Plan& plan, LegacyTarget& target, const LegacyRankTarget& rank,
                             bool by_ranks);

/// "optimizer" of a rank's model file where it holds all: PyTorch's state by parameter and fp32
/// copies of 16-bit parameters. unsupported when a parameter belongs to no parameter group.
Value plain_optimizer_value(TorchFilePlan& file, LegacyTarget& target,
                            const LegacyRankTarget& rank);

/// "optimizer" of a rank's model file, which has what the folder's first rank has; nothing reads
/// it.
Value layer_wise_optimizer_value(TorchFilePlan& file, LegacyTarget& target,
                                 const LegacyRankTarget& rank);

/// Adds <folder>/layer_wise_optimizer_N.pt of every data rank of every folder. unsupported where
/// Megatron-LM would lose a part of them.
void add_layer_wise_files(Plan& plan, LegacyTarget& target,
                          const std::vector<LegacyRankTarget>& ranks);

}  // namespace ferry
