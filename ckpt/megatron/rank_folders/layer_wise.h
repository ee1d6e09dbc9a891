// Optimizer state of rank folders with a layer-wise optimizer: layer_wise_optimizer_N.pt, one file
// of each data rank, which holds PyTorch's state and fp32 copies of the parameters that the rank
// has. Which these are no file says: it follows from the sizes of all.
//
// Source: megatron/training/checkpointing.py (save_checkpoint), core/optimizer/
// layer_wise_optimizer.py (save_state_dict_to_file, _shard_params_ping_pong).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ckpt/megatron/optimizer/optimizer_entries.h"
#include "ckpt/megatron/rank_folders/model.h"

namespace ferry {

/// A rank of the run and its file.
struct LayerWiseFile {
  size_t folder = 0;                  // position among the folders
  int64_t data = 0, expert_data = 0;  // its data rank, and that of its experts
  int64_t data_ranks = 1, expert_data_ranks = 1;
  int64_t rank = 0;  // global
  std::string name;  // layer_wise_optimizer_N.pt
};

/// Those of a run. unsupported where ranks with different parts write the same file (context
/// parallelism), or where the arguments do not say how many ranks there are.
std::vector<LayerWiseFile> layer_wise_files(const RunArguments& run,
                                            const std::vector<RankFolder>& folders);

/// Adds the state of all files under `path`. not_found when some are missing, which names them;
/// mismatch or unsupported, with the reason, when they do not fit the model.
void add_layer_wise_state(Catalog& catalog, const std::string& path,
                          const std::vector<RankFolder>& folders, const LegacyModel& model,
                          const RunArguments& run, int64_t heads, OptimizerEntries& entries);

/// Adds the state in the ranks' own files where matrices have an optimizer of their own that is not
/// layer-wise.
void add_state_of_matrices(const std::vector<RankFolder>& folders,
                           const std::vector<LegacyRank>& ranks, const LegacyModel& model,
                           const RunArguments& run, int64_t heads, OptimizerEntries& entries);

}  // namespace ferry
