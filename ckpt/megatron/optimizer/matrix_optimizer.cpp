#include "ckpt/megatron/optimizer/matrix_optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string_view>

#include "ckpt/io/file_system.h"

namespace ferry {
bool is_matrix_parameter(std::string_view name, size_t axes) {
  return axes == 2 && name != "output_layer.weight" && !name.ends_with("word_embeddings.weight") &&
         !name.ends_with(".in_proj.weight");
}

bool has_momentum(const Value& group) {
  return group.has("momentum") || group.has("momentum_beta");
}

std::vector<bool> matrix_tensors(const ModelLayout& layout, const ModuleChoice& modules) {
  std::vector<bool> matrices(layout.tensors().size(), false);
  const auto mark = [&](const RankCoordinates& rank) {
    for (const LocalParameter& parameter : layout.parameters(rank, modules)) {
      if (!parameter.trainable) continue;
      for (const Shard& shard : parameter.shards) {
        matrices[shard.tensor] = is_matrix_parameter(layout.tensors()[shard.tensor].name,
                                                     static_cast<size_t>(parameter.axes));
      }
    }
  };
  RankCoordinates rank;
  for (rank.stage = 0; rank.stage < layout.run().pipeline; ++rank.stage) {
    for (rank.chunk = 0; rank.chunk < layout.pipeline().chunks(); ++rank.chunk) {
      for (rank.expert = 0; rank.expert < layout.run().expert; ++rank.expert) mark(rank);
    }
  }
  return matrices;
}

std::vector<int64_t> owners_to_and_fro(std::span<const SpreadParameter> parameters,
                                       int64_t data_ranks, int64_t expert_data_ranks) {
  std::vector<size_t> order(parameters.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return parameters[i].elements; });
  std::vector<int64_t> owners(parameters.size());
  int64_t dense = 0, experts = 0;
  const auto next = [](int64_t& turn, int64_t ranks) {
    const int64_t at = turn;
    turn = (turn + 1) % (2 * ranks);
    return at < ranks ? at : 2 * ranks - 1 - at;
  };
  for (const size_t i : order) {
    owners[i] = parameters[i].experts ? next(experts, expert_data_ranks) : next(dense, data_ranks);
  }
  return owners;
}

namespace {

bool is_layer_wise_file(std::string_view name) {
  constexpr std::string_view kPrefix = "layer_wise_optimizer_", kSuffix = ".pt";
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return false;
  name.remove_prefix(kPrefix.size());
  if (name.size() <= kSuffix.size()) return false;
  name.remove_suffix(kSuffix.size());
  return name.find_first_not_of("0123456789") == std::string_view::npos;
}

// The files of one folder, and how many.
struct Found {
  std::string folder;
  int64_t files = 0;
};

Found find_files(const FileSystem& file_system, const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    if (file_system.status(folder).kind != PathKind::folder) continue;
    const auto names = file_system.list(folder);
    const auto files = std::count_if(names.begin(), names.end(), is_layer_wise_file);
    if (files > 0) return {folder, files};
  }
  return {};
}

}  // namespace

bool has_layer_wise_files(const FileSystem& file_system, const std::string& folder) {
  return find_files(file_system, {folder}).files > 0;
}

void look_for_layer_wise_optimizer(Checkpoint& checkpoint,
                                   const std::vector<std::string>& folders) {
  if (checkpoint.optimizer != OptimizerLayout::none) return;
  const Found found = find_files(*checkpoint.catalog->file_system, folders);
  if (found.files == 0) return;
  checkpoint.optimizer_problem = fmt::format(
      "The optimizer's state is left out: it is in {} file{} layer_wise_optimizer_*.pt in {}, "
      "one of each data rank, which cannot be read there.",
      found.files, found.files == 1 ? "" : "s", found.folder);
  checkpoint.optimizer_unsupported = true;
}

}  // namespace ferry
