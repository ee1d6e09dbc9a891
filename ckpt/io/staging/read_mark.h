// What a ferry process reads bears a mark, so that no other one removes it meanwhile; and a reader
// can tell whether it was removed or replaced all the same.
//
// The mark is a shared lock (LockableFile) on one file of the checkpoint: nothing is written, so it
// works on read-only file systems too. Where there are no locks (Lustre without `flock`), or none
// that other hosts see, nobody is kept from removing; still_there() tells afterwards.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "ckpt/io/file_system.h"

namespace ferry {

class ReadMark {
 public:
  /// Marks a checkpoint folder or lone file; before anything of it is read. Never fails: a mark
  /// that cannot be had is void, and says why.
  ReadMark(const FileSystem& file_system, const std::string& path);

  /// Why others cannot see the mark; empty when they can.
  const std::string& problem() const noexcept { return problem_; }

  /// True while the path leads to the checkpoint that was marked. Where even that cannot be seen:
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
void check_marks(std::span<const std::shared_ptr<const ReadMark>> marks);

/// Whether any process, this one included, holds a mark on the checkpoint at `path`. False where
/// that cannot be seen; when an error keeps it from being seen, `unseen`, if given, gets that.
bool is_being_read(const FileSystem& file_system, const std::string& path,
                   std::string* unseen = nullptr);

}  // namespace ferry
