// The files of a folder that somebody else filled.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "ckpt/core/catalog.h"
#include "ckpt/io/file_system.h"

namespace ferry {

struct FolderFiles {
  std::vector<FileInfo> files;        // regular ones, in the order of their names
  std::vector<std::string> not_seen;  // folders that were not looked into, and why
};

/// All files below `folder`. Links to folders are followed, as rank folders may be elsewhere, but
/// not from below another link: circles end. Nor are folders followed more than 16 deep. cancelled
/// when `cancel` is set meanwhile.
FolderFiles files_below(const FileSystem& file_system, const std::string& folder,
                        const std::atomic<bool>* cancel = nullptr);

}  // namespace ferry
