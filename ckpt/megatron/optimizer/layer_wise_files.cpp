#include "ckpt/megatron/optimizer/layer_wise_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "ckpt/io/file_system.h"

namespace ferry {
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
