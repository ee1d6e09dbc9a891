#include "ckpt/io/staging/reader_lock.h"

#include "ckpt/base/error.h"

namespace ferry {
namespace {

// One file of a checkpoint on which all agree: `.metadata`, else the first by name, at most two
// folders down (mp_rank_00/model_optim_rng.pt). Empty when there is none.
std::string marked_file(const FileSystem& file_system, const std::string& path, int depth = 2) {
  const PathStatus status = file_system.status(path);
  if (status.kind == PathKind::file) return path;
  if (status.kind != PathKind::folder || depth == 0) return {};
  const std::string metadata = join(path, ".metadata");
  if (file_system.status(metadata).kind == PathKind::file) return metadata;
  const std::vector<std::string> names = file_system.list(path);
  for (const std::string& name : names) {
    const std::string file = join(path, name);
    if (file_system.status(file).kind == PathKind::file) return file;
  }
  for (const std::string& name : names) {
    const std::string file = marked_file(file_system, join(path, name), depth - 1);
    if (!file.empty()) return file;
  }
  return {};
}

std::unique_ptr<LockableFile> open_marked(const FileSystem& file_system, const std::string& path) {
  const std::string file = marked_file(file_system, path);
  return file.empty() ? nullptr : file_system.open_lockable(file, LockMode::shared);
}

}  // namespace

ReaderLock::ReaderLock(const FileSystem& file_system, const std::string& path) : path_(path) {
  try {
    file_ = open_marked(file_system, path);
    if (!file_ || file_->lock(LockMode::shared) == LockState::taken) return;
    problem_ = fmt::format(
        "{}: the file system has no locks, so that other processes do not see that this one reads "
        "here",
        path);
  } catch (const Error& error) {
    problem_ = error.what();
  }
}

bool ReaderLock::still_there() const { return !file_ || file_->still_at_path(); }

void ReaderLock::check() const {
  if (still_there()) return;
  fail(ErrorKind::busy, "{} was removed or replaced while it was read; run again", path_);
}

void check_reader_locks(std::span<const std::shared_ptr<const ReaderLock>> reader_locks) {
  for (const auto& lock : reader_locks) lock->check();
}

bool is_being_read(const FileSystem& file_system, const std::string& path, std::string* unseen) {
  try {
    const auto file = open_marked(file_system, path);
    return file && file->probe(LockMode::exclusive) == LockState::busy;
  } catch (const Error& error) {
    if (unseen && error.kind() != ErrorKind::not_found) *unseen = error.what();
    return false;
  }
}

}  // namespace ferry
