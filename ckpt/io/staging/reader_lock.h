// A lock on what a ferry process reads, so that no other one removes it meanwhile; and a check
// whether it was removed or replaced all the same.
//
// The lock is a shared lock (LockableFile) on one file of the checkpoint: nothing is written, so it
// works on read-only file systems too. Where there are no locks (Lustre without `flock`), or none
// that other hosts see, nobody is kept from removing; still_there() finds out afterwards.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "ckpt/io/file_system.h"

namespace ferry {

class ReaderLock {
 public:
  /// Locks a checkpoint folder or lone file, before anything of it is read. Never fails: a lock
  /// that is not possible is void, and says why.
  ReaderLock(const FileSystem& file_system, const std::string& path);

  /// Why others cannot see the lock; empty when they can.
  const std::string& problem() const noexcept { return problem_; }

  /// True while the path leads to the checkpoint that was locked. Where even that cannot be seen:
  /// true.
  bool still_there() const;

  /// busy when still_there() is false: what was read may be of two checkpoints.
  void check() const;

 private:
  std::string path_;
  std::string problem_;
  std::unique_ptr<LockableFile> file_;
};

/// check() of each.
void check_reader_locks(std::span<const std::shared_ptr<const ReaderLock>> reader_locks);

/// Whether any process, this one included, holds a lock on the checkpoint at `path`. False where
/// that cannot be seen; when an error keeps it from being seen, `unseen`, if given, gets that.
bool is_being_read(const FileSystem& file_system, const std::string& path,
                   std::string* unseen = nullptr);

}  // namespace ferry
