#include "ckpt/format/hugging_face/hub_cache.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

constexpr uint64_t kMostRefBytes = 200;

bool is_folder(const FileSystem& files, const std::string& path) {
  return files.status(path).kind == PathKind::folder;
}

// What refs/main says; empty where there is none.
std::string main_commit(const FileSystem& files, const std::string& folder) {
  const std::string path = join(folder, "refs/main");
  if (files.status(path).kind != PathKind::file) return {};
  std::string commit = read_file(files, path, kMostRefBytes);
  commit.erase(commit.find_last_not_of(" \n\r") + 1);
  if (commit.empty() || commit.find('/') != std::string::npos) {
    fail(ErrorKind::corrupt, "{}: names no commit", path);
  }
  join_untrusted(folder, commit);
  return commit;
}

}  // namespace

bool is_hub_cache(const FileSystem& file_system, const std::string& folder) {
  return is_folder(file_system, join(folder, "snapshots")) &&
         (is_folder(file_system, join(folder, "refs")) ||
          is_folder(file_system, join(folder, "blobs")));
}

std::string hub_snapshot(const FileSystem& file_system, const std::string& folder) {
  if (!is_hub_cache(file_system, folder)) return {};
  const std::string snapshots = join(folder, "snapshots");
  if (const std::string commit = main_commit(file_system, folder); !commit.empty()) {
    const std::string snapshot = join(snapshots, commit);
    if (is_folder(file_system, snapshot)) return snapshot;
    fail(ErrorKind::not_found,
         "{}: refs/main names the commit {}, whose snapshot is not there; download it again",
         folder, commit);
  }
  const std::vector<std::string> commits = file_system.list(snapshots);
  if (commits.size() == 1) return join(snapshots, commits.front());
  if (commits.empty()) {
    fail(ErrorKind::not_found, "{}: a cache of Hugging Face without a snapshot; download it again",
         folder);
  }
  fail(ErrorKind::invalid, "{}: holds {} snapshots and no refs/main; give one of them: {}", folder,
       commits.size(), fmt::join(commits, ", "));
}

std::optional<Sha256> hub_sha256(const FileSystem& file_system, const std::string& path) {
  if (!file_system.status(path).link) return std::nullopt;
  const SplitPath blob = split_path(file_system.real_path(path));
  if (split_path(blob.parent).name != "blobs") return std::nullopt;
  return parse_sha256(blob.name);
}

}  // namespace ferry
