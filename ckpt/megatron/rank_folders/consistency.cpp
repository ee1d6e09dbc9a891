#include "ckpt/megatron/rank_folders/consistency.h"

#include <fmt/format.h>

#include <algorithm>

#include "ckpt/megatron/rank_folders/rank.h"

namespace ferry {
namespace {

std::string file_of(const RankFolder& folder) { return join(folder.name, kLegacyModelFile); }

// Whether a process of that number in the run can have had the folder's place.
bool can_be(int64_t rank, const RankFolder& folder, const RunArguments& run) {
  const RankCoordinates& place = folder.rank;
  if (rank < 0 || rank % run.tensor != place.tensor) return false;
  // Context ranks come between tensor and expert ranks in releases without expert-tensor ranks.
  if (run.context == 1 && rank / run.expert_tensor % run.expert != place.expert) return false;
  if (run.world_size < run.pipeline) return true;  // not known
  return rank / run.stage_stride() % run.pipeline == place.stage;
}

// Tools that convert on one process do not count ranks.
bool counts_ranks(std::span<const RankOrigin> origins) {
  return std::any_of(origins.begin(), origins.end(), [](const RankOrigin& origin) {
    return origin.saves_rng || origin.rank.value_or(0) != 0;
  });
}

std::string different_save(const RankFolder& folder, const RankOrigin& origin,
                           const RankFolder& first, const RankOrigin& of_first) {
  for (size_t i = 0; i < kSameInAllRanks.size(); ++i) {
    const auto &found = origin.of_run[i], &expected = of_first.of_run[i];
    if (found == expected || !found || !expected) continue;
    return fmt::format("{} is from another save: it says {} {}, {} says {}", file_of(folder),
                       kSameInAllRanks[i], *found, file_of(first), *expected);
  }
  return {};
}

}  // namespace

RankOrigin origin_of(const Value& root) {
  const Value args = root.get("args");
  RankOrigin origin;
  origin.rank = args.get("rank").integer();
  origin.of_run[0] = root.get(kSameInAllRanks[0]).integer();
  for (size_t i = 1; i < kSameInAllRanks.size(); ++i) {
    origin.of_run[i] = args.get(kSameInAllRanks[i]).integer();
  }
  origin.saves_rng = !root.get("rng_state").is_none();
  origin.has_flat_optimizer = !root.get("optimizer").is_none() &&
                              args.get("use_distributed_optimizer").boolean().value_or(false);
  return origin;
}

std::vector<std::string> contradictions(std::span<const RankFolder> folders,
                                        std::span<const RankOrigin> origins,
                                        const RunArguments& run) {
  std::vector<std::string> problems;
  const bool by_rank = counts_ranks(origins);
  for (size_t i = 0; i < folders.size(); ++i) {
    const RankFolder& folder = folders[i];
    std::string problem = different_save(folder, origins[i], folders[0], origins[0]);
    if (problem.empty() && by_rank && origins[i].rank && !can_be(*origins[i].rank, folder, run)) {
      problem = fmt::format(
          "{} was written by rank {} of the run, and the folder is rank {}'s: files of ranks were "
          "swapped or overwritten",
          file_of(folder), *origins[i].rank, folder.first_rank);
    }
    if (!problem.empty()) problems.push_back(std::move(problem));
  }
  return problems;
}

}  // namespace ferry
