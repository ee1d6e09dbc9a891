// Checks of a folder that is to be written, before any work: what would else show at the end only.
#pragma once

#include <functional>
#include <string>

#include "ckpt/io/file_system.h"
#include "tools/output/foreign_entries.h"

namespace ferry::tool {

struct TargetFolder {
  std::string source;  // what is read
  std::string target;  // the folder that will appear
  bool overwrite = false;
  /// Whether what is there may be replaced: --overwrite removes the whole folder, and a mistyped
  /// name must not cost a home directory.
  std::function<bool(const std::string& folder)> is_replaceable;
  std::string replaceable_are;  // "converted model": what --overwrite replaces
  FolderContent content = FolderContent::checkpoint;  // the same, for what stands beside it there
};

/// As StagedFolder::check_target(); invalid also when the target holds the source or something that
/// may not be replaced, or files of other origin beside what may.
void check_target(const FileSystem& file_system, const TargetFolder& folder);

}  // namespace ferry::tool
