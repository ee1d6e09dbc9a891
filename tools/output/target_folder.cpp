#include "tools/output/target_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "ckpt/base/error.h"
#include "ckpt/io/staging/staging.h"

namespace ferry::tool {
namespace {

namespace fs = std::filesystem;

constexpr size_t kForeignShown = 5;

fs::path canonical(const std::string& path) {
  std::error_code error;
  const auto result = fs::weakly_canonical(path, error);
  return error ? fs::path(path) : result;
}

bool is_same_or_inside(const fs::path& inner, const fs::path& outer) {
  const auto [end, unused] = std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end());
  return end == outer.end();
}

// --overwrite removes the whole folder: a README, a repository or results that somebody keeps
// beside the model, too.
void refuse_foreign(const FileSystem& file_system, const TargetFolder& folder) {
  std::vector<std::string> foreign = foreign_entries(file_system, folder.target, folder.content);
  if (foreign.empty()) return;
  const size_t count = foreign.size();
  foreign.resize(std::min(count, kForeignShown));
  fail(ErrorKind::invalid,
       "the target {} holds besides the {}: {}{}; --overwrite would remove that, too. Move it "
       "away, remove it, or choose another target",
       folder.target, folder.replaceable_are, fmt::join(foreign, ", "),
       count > kForeignShown ? fmt::format(" and {} more", count - kForeignShown) : "");
}

}  // namespace

void check_target(const FileSystem& file_system, const TargetFolder& folder) {
  const std::string& target = folder.target;
  StagedFolder::check_target(file_system, target, folder.overwrite);
  if (file_system.status(target).kind == PathKind::missing) return;
  if (is_same_or_inside(canonical(folder.source), canonical(target))) {
    fail(ErrorKind::invalid, "the target {} holds the source {}: replacing it would destroy that",
         target, folder.source);
  }
  if (!file_system.list(target).empty() && !folder.is_replaceable(target)) {
    fail(ErrorKind::invalid,
         "the target {} is not empty and holds no {}; --overwrite replaces only such folders. "
         "Remove it yourself or choose another",
         target, folder.replaceable_are);
  }
  refuse_foreign(file_system, folder);
}

}  // namespace ferry::tool
