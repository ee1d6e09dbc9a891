#include "ckpt/io/staging/staging.h"

#include "ckpt/base/error.h"
#include "ckpt/io/staging/publish.h"
#include "ckpt/io/staging/reader_lock.h"

namespace ferry {
namespace {

std::string checked_target(const FileSystem& file_system, std::string target) {
  while (target.size() > 1 && target.back() == '/') target.pop_back();
  const SplitPath parts = split_path(target);
  if (parts.name.empty() || parts.name == "." || parts.name == "..") {
    fail(ErrorKind::invalid, "'{}' cannot be a target; give the name of a folder to create",
         target);
  }
  const PathKind parent = file_system.status(parts.parent).kind;
  if (parent != PathKind::folder && parent != PathKind::missing) {
    fail(ErrorKind::invalid, "{}, which is to hold the target {}, is not a folder", parts.parent,
         target);
  }
  if (parent == PathKind::missing) {
    fail(ErrorKind::not_found, "the folder {} of target {} does not exist; create it first",
         parts.parent, target);
  }
  return target;
}

void sync_tree(const FileSystem& file_system, const std::string& folder) {
  for (const std::string& name : file_system.list(folder)) {
    const std::string path = join(folder, name);
    const PathStatus status = file_system.status(path);
    if (status.kind == PathKind::folder && !status.link) sync_tree(file_system, path);
  }
  file_system.sync_folder(folder);
}

}  // namespace

void StagedFolder::check_target(const FileSystem& file_system, const std::string& given,
                                bool overwrite) {
  const std::string target = checked_target(file_system, given);
  const PathStatus status = file_system.status(target);
  if (status.kind == PathKind::missing && status.link) {
    fail(ErrorKind::invalid,
         "the target {} is a link to something that does not exist; remove it or choose another",
         target);
  }
  if (status.kind == PathKind::missing) return;
  if (status.kind != PathKind::folder) {
    fail(ErrorKind::invalid, "the target {} exists and is not a folder", target);
  }
  if (status.link) {
    fail(ErrorKind::invalid,
         "the target {} is a symbolic link, which the new folder would replace; give the folder "
         "that it leads to, or remove the link",
         target);
  }
  if (!overwrite) {
    fail(ErrorKind::invalid, "the target {} exists; choose another, or give {} to replace it",
         target, option("overwrite"));
  }
}

StagedFolder::StagedFolder(std::shared_ptr<const FileSystem> file_system, std::string target,
                           bool overwrite, const WriteLockOptions& write_lock)
    : file_system_(std::move(file_system)),
      target_(checked_target(*file_system_, std::move(target))),
      overwrite_(overwrite) {
  write_lock_ = std::make_unique<WriteLock>(file_system_, target_, write_lock);
  notes_ = write_lock_->notes();
  check_target(*file_system_, target_, overwrite_);  // after the lock put a former one back
  if (is_being_read(*file_system_, target_)) {
    fail(ErrorKind::busy,
         "the target {} is being read by another process; replace it when that is done", target_);
  }
  partial_ = write_lock_->partial_path();
  file_system_->create_folder(partial_);
}

StagedFolder::~StagedFolder() {
  if (committed_) return;
  try {
    file_system_->remove_all(partial_);
  } catch (const std::exception&) {  // out of memory, too
    // Nothing more can be done; the next writer of the target tries again.
  }
}

void StagedFolder::write_file(const std::string& name, const std::string& content) {
  ferry::write_file(*file_system_, join(partial_, name), content);
}

std::unique_ptr<WriteLock> StagedFolder::commit() {
  sync_tree(*file_system_, partial_);
  write_lock_->check();
  check_target(*file_system_, target_, overwrite_);
  const std::string parent = split_path(target_).parent;
  const bool replaces = file_system_->status(target_).kind != PathKind::missing;
  if (replaces) {
    replace_target();
  } else {
    file_system_->rename(partial_, target_);
  }
  committed_ = true;
  sync_published(*file_system_, parent, target_ + " is complete and in place",
                 replaces ? "; the older one is now " + partial_ : "");
  if (replaces) remove_replaced();
  return std::move(write_lock_);
}

// By now the older target has the partial folder's name.
void StagedFolder::remove_replaced() {
  try {
    file_system_->remove_all(partial_);
  } catch (const Error& error) {
    fail(error.kind(), "{} is complete and in place, but the older one, now {}, stays: {}", target_,
         partial_, error.what());
  }
}

// Puts the partial folder under the target's name and the older one under the partial's.
void StagedFolder::replace_target() {
  try {
    file_system_->exchange(partial_, target_);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::unsupported) throw;
    const std::string old = write_lock_->old_path();
    file_system_->rename(target_, old);
    try {
      file_system_->rename(partial_, target_);
    } catch (...) {
      file_system_->rename(old, target_);
      throw;
    }
    file_system_->rename(old, partial_);
  }
}

}  // namespace ferry
