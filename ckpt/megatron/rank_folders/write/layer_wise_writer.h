// The files of a layer-wise optimizer in rank folders: what layer_wise.h reads.
#pragma once

#include <vector>

#include "ckpt/core/plan.h"
#include "ckpt/format/torch/torch_file_plan.h"
#include "ckpt/megatron/rank_folders/write/target.h"

namespace ferry {

/// "optimizer" of a rank's model file, which has what the folder's first rank has; nothing reads
/// it.
Value layer_wise_optimizer_value(TorchFilePlan& file, LegacyTarget& target,
                                 const LegacyRankTarget& rank);

/// Adds <folder>/layer_wise_optimizer_N.pt of every data rank of every folder. unsupported where
/// Megatron-LM would lose a part of them.
void add_layer_wise_files(Plan& plan, LegacyTarget& target,
                          const std::vector<LegacyRankTarget>& ranks);

}  // namespace ferry
