#include "ckpt/megatron/rank_folders/folder_names.h"

#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"

namespace ferry {

bool is_rank_folder_name(std::string_view name) {
  constexpr std::string_view kPrefix = "mp_rank_";
  if (!name.starts_with(kPrefix)) return false;
  name.remove_prefix(kPrefix.size());
  for (int part = 0; part < 3; ++part) {
    const size_t end = name.find_first_not_of("0123456789");
    if (end == 0 || name.empty()) return false;
    if (end == std::string_view::npos) return true;
    if (name[end] != '_') return false;
    name.remove_prefix(end + 1);
  }
  return false;
}

std::vector<RankFolder> expected_rank_folders(const RunArguments& run) {
  const int64_t experts = checked_multiply(run.expert_tensor, run.expert, "expert-parallel ranks");
  constexpr int64_t kMostRanks = int64_t{1} << 20;
  // Inside a stage, tensor ranks are next to one another, as are expert-tensor ranks and then
  // expert ranks: the pattern repeats after the least common multiple.
  const int64_t period = std::lcm(run.tensor, experts);
  if (period > kMostRanks || checked_multiply(period, run.pipeline, "ranks") > kMostRanks) {
    fail(ErrorKind::mismatch, "{} tensor x {} expert x {} pipeline ranks are too many", run.tensor,
         experts, run.pipeline);
  }
  std::vector<RankFolder> folders;
  for (int64_t stage = 0; stage < run.pipeline; ++stage) {
    std::map<std::string, size_t> seen;
    std::set<int64_t> dense;
    std::set<std::pair<int64_t, int64_t>> routed;
    for (int64_t i = 0; i < period; ++i) {
      RankFolder folder;
      folder.rank = {i % run.tensor, i % run.expert_tensor, i / run.expert_tensor % run.expert,
                     stage, 0};
      folder.first_rank = stage * run.stage_stride() + i;
      folder.name = fmt::format("mp_rank_{:02d}", folder.rank.tensor);
      if (run.pipeline > 1) folder.name += fmt::format("_{:03d}", stage);
      if (run.expert > 1) folder.name += fmt::format("_{:03d}", folder.rank.expert);
      const auto [at, is_new] = seen.emplace(folder.name, folders.size());
      if (!is_new) {
        if (folders[at->second].rank.expert_tensor != folder.rank.expert_tensor &&
            run.experts > 0) {
          fail(
              ErrorKind::unsupported,
              "ranks with different parts of the experts write the same folder {} (tensor parallel "
              "{}, expert tensor parallel {}): this format loses a part of such a model",
              folder.name, run.tensor, run.expert_tensor);
        }
        continue;
      }
      folder.gives_dense = dense.insert(folder.rank.tensor).second;
      folder.gives_experts = routed.emplace(folder.rank.expert_tensor, folder.rank.expert).second;
      folders.push_back(std::move(folder));
    }
  }
  return folders;
}

}  // namespace ferry
