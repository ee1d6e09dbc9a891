// Whether the rank folders of a legacy checkpoint belong together, as far as their files say who
// wrote them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ckpt/format/pickle/values/value.h"
#include "ckpt/megatron/model/run_arguments.h"
#include "ckpt/megatron/rank_folders/folder_names.h"

namespace ferry {

/// What is the same in the files of all ranks of one save. The first is in the file itself, the
/// others in its arguments.
inline constexpr std::array<const char*, 6> kSameInAllRanks{
    "iteration",  "world_size", "tensor_model_parallel_size", "pipeline_model_parallel_size",
    "num_layers", "seed"};

/// What model_optim_rng.pt says of its own origin; nothing where it does not.
struct RankOrigin {
  std::optional<int64_t> rank;  // of the process in the whole run
  std::array<std::optional<int64_t>, kSameInAllRanks.size()> of_run;
  bool saves_rng = false;
  bool has_flat_optimizer = false;  // the state is in distrib_optim.pt next to it
};

RankOrigin origin_of(const Value& root);

/// Files that another rank or another save wrote than their folder or the first folder says, one
/// sentence each. `origins` are parallel to `folders`. Programs that write all folders from one
/// process leave rank 0 and no random state in all of them: these are not judged by rank.
///
/// Source: megatron/core/parallel_state.py (RankGenerator: which rank has which coordinates).
std::vector<std::string> contradictions(std::span<const RankFolder> folders,
                                        std::span<const RankOrigin> origins,
                                        const RunArguments& run);

}  // namespace ferry
