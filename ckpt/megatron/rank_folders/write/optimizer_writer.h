// The optimizer's state of legacy rank folders: what legacy_optimizer.h reads.
//
// Source: megatron/core/optimizer/distrib_optimizer.py (state_dict, get_parameter_state_dp_zero),
// optimizer.py (state_dict of every class, save_parameter_state), torch/optim/optimizer.py.
#pragma once

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

}  // namespace ferry
