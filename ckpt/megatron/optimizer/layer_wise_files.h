// Optimizer state in files of its own next to a checkpoint: layer_wise_optimizer_N.pt, one of each
// data-parallel rank, with the state of the layers that it owns.
//
// Source: megatron/training/checkpointing.py (save_checkpoint), core/optimizer/
// layer_wise_optimizer.py (save_state_dict_to_file).
#pragma once

#include <string>
#include <vector>

#include "ckpt/checkpoint.h"

namespace ferry {

/// Whether a folder has such files.
bool has_layer_wise_files(const FileSystem& file_system, const std::string& folder);

/// Looks for such files in `folders`, those that exist, where a distributed checkpoint has no
/// optimizer state. `optimizer_problem` then says where it is: next to such a checkpoint nothing
/// says which rank folder a file belongs to.
void look_for_layer_wise_optimizer(Checkpoint& checkpoint, const std::vector<std::string>& folders);

}  // namespace ferry
