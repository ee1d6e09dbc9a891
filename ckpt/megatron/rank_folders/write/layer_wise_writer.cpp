#include "ckpt/megatron/rank_folders/write/layer_wise_writer.h"

#include <utility>

#include "ckpt/megatron/rank_folders/layer_wise.h"
#include "ckpt/megatron/rank_folders/write/plain_optimizer.h"

namespace ferry {
namespace {

Value value_of_rank(TorchFilePlan& out, LegacyTarget& target, const LegacyRankTarget& rank,
                    const LayerWiseFile& file, bool copy) {
  std::vector<PlainOptimizerValue> optimizers = optimizers_of_rank(target, rank);
  const bool spread = file.data_ranks > 1;
  std::vector<SpreadParameter> parameters;
  std::vector<size_t> starts;
  for (PlainOptimizerValue& one : optimizers) {
    if (spread) one.sort_by_size();
    starts.push_back(parameters.size());
    one.append_to(parameters);
  }
  std::vector<int64_t> owners;
  if (spread) owners = owners_to_and_fro(parameters, file.data_ranks, file.expert_data_ranks);
  const auto again = [&](const LocalParameter& parameter) {
    return copy || (spread ? !parameter.first_copy : !rank.gives(parameter));
  };
  std::vector<Value> values;
  for (size_t i = 0; i < optimizers.size(); ++i) {
    const auto owned = [&](size_t number, const LocalParameter&) {
      const size_t at = starts[i] + number;
      return !spread || owners[at] == (parameters[at].experts ? file.expert_data : file.data);
    };
    values.push_back(optimizers[i].make(out, owned, again));
  }
  return values.size() == 1 ? values.front() : out.draft().list(values);
}

}  // namespace

Value layer_wise_optimizer_value(TorchFilePlan& file, LegacyTarget& target,
                                 const LegacyRankTarget& rank) {
  for (const LayerWiseFile& one : layer_wise_files(target.run, expected_rank_folders(target.run))) {
    if (one.rank == rank.folder.first_rank) return value_of_rank(file, target, rank, one, true);
  }
  return file.draft().none();
}

void add_layer_wise_files(Plan& plan, LegacyTarget& target,
                          const std::vector<LegacyRankTarget>& ranks) {
  std::vector<RankFolder> folders;
  for (const LegacyRankTarget& rank : ranks) folders.push_back(rank.folder);
  for (const LayerWiseFile& file : layer_wise_files(target.run, folders)) {
    TorchFilePlan out(file.rank);
    const Value root = value_of_rank(out, target, ranks[file.folder], file, false);
    std::move(out).add_to(plan, join(folders[file.folder].name, file.name), root);
  }
}

}  // namespace ferry
