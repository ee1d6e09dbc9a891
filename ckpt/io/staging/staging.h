// Output that appears under its final name only when it is complete and on disk.
//
// A StagedFolder locks its target (write_lock.h), is written next to it as
// ".ferry-partial.NAME.TOKEN", fsynced file by file and folder by folder, renamed over the target,
// and the parent folder fsynced. Whatever ends the process before commit() leaves the target as it
// was; what a dead process left is removed by the next writer of the same target.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ckpt/io/file_system.h"
#include "ckpt/io/staging/write_lock.h"

namespace ferry {

class StagedFolder {
 public:
  /// Checks the target before any work: invalid when it exists and `overwrite` is false, when it is
  /// not a folder itself (a link is none) or names none (".."); not_found when the folder above it
  /// does not exist.
  static void check_target(const FileSystem& file_system, const std::string& target,
                           bool overwrite);

  /// Creates the partial folder. invalid when `target` exists and `overwrite` is false, or when it
  /// is not a folder; busy when another process writes it, or reads what is to be replaced. The
  /// parent folder must exist.
  StagedFolder(std::shared_ptr<const FileSystem> file_system, std::string target, bool overwrite,
               const WriteLockOptions& write_lock = {});
  ~StagedFolder();  // without commit(): removes the partial folder
  StagedFolder(const StagedFolder&) = delete;
  StagedFolder& operator=(const StagedFolder&) = delete;

  const std::string& path() const noexcept { return partial_; }
  const std::string& target() const noexcept { return target_; }
  /// Leftovers of other writers that were kept, and why.
  const std::vector<std::string>& notes() const noexcept { return notes_; }

  /// Writes a small file into the folder and syncs it.
  void write_file(const std::string& name, const std::string& content);

  /// Syncs the folder and those in it, puts it in the target's place and syncs the parent. An older
  /// target is removed once the new one is in place; a ferry process that began to read it
  /// meanwhile gets an error (ReaderLock). busy when another process took the lock over. All files
  /// inside must have been synced by their writers. Returns the lock, for those who are not done
  /// with the target; its destructor releases it.
  std::unique_ptr<WriteLock> commit();

 private:
  void replace_target();
  void remove_replaced();

  std::shared_ptr<const FileSystem> file_system_;
  std::string target_;
  std::string partial_;
  bool overwrite_;
  std::unique_ptr<WriteLock> write_lock_;  // until commit
  std::vector<std::string> notes_;
  bool committed_ = false;
};

}  // namespace ferry
