// Output that appears under its final name only when it is complete and on disk.
//
// A StagedFolder is written beside the target as ".<name>.ferry-partial-<host>-<process>-<random>",
// fsynced file by file, renamed over the target and the parent folder fsynced. Whatever ends the
// process before commit() leaves the target as it was; leftovers of dead processes of a host are
// removed by the next writer of the same target there.
#pragma once

#include <memory>
#include <string>

#include "ckpt/io/file_system.h"

namespace ferry {

class StagedFolder {
 public:
  /// Creates the partial folder. invalid when `target` exists and `overwrite` is false, or when it
  /// is not a folder; the parent folder must exist.
  StagedFolder(std::shared_ptr<const FileSystem> file_system, std::string target, bool overwrite);
  ~StagedFolder();  // without commit(): removes the partial folder
  StagedFolder(const StagedFolder&) = delete;
  StagedFolder& operator=(const StagedFolder&) = delete;

  const std::string& path() const noexcept { return partial_; }
  const std::string& target() const noexcept { return target_; }

  /// Writes a small file into the folder and syncs it.
  void write_file(const std::string& name, const std::string& content);

  /// Syncs the folder, puts it in the target's place, syncs the parent. An older target is removed
  /// after the new one stands. All files inside must have been synced by their writers.
  void commit();

 private:
  void check_target() const;
  void replace_target();

  std::shared_ptr<const FileSystem> file_system_;
  std::string target_;
  std::string partial_;
  bool overwrite_;
  bool committed_ = false;
};

}  // namespace ferry
