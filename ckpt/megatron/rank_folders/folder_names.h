// Which rank folders a legacy checkpoint must have, and what each gives.
#pragma once

#include <string>
#include <vector>

#include "ckpt/io/file_system.h"
#include "ckpt/megatron/model/model_layout.h"

namespace ferry {

struct RankFolder {
  std::string name;        // mp_rank_TT[_PPP[_EEE]]
  RankCoordinates rank;    // chunk 0
  int64_t first_rank = 0;  // the lowest of the run's ranks that have this folder
  // The first folder of those that hold the same part of the model; the others are copies.
  bool gives_dense = false;
  bool gives_experts = false;
};

/// True for "mp_rank_00", "mp_rank_00_000" and the like.
bool is_rank_folder_name(std::string_view name);

/// The folders that a run of these sizes writes, stage by stage. unsupported where two ranks with
/// different parts of the model would have written one folder.
std::vector<RankFolder> expected_rank_folders(const RunArguments& run);

}  // namespace ferry
