// Files in a folder that do not belong to the checkpoint or model there, and must not be removed
// with it.
#pragma once

#include <string>
#include <vector>

#include "ckpt/io/file_system.h"

namespace ferry {

enum class FolderContent { checkpoint, model };

/// Entries of `folder`, as paths inside it, that are not part of what it holds: that its manifest
/// does not name, or, where there is none that can be read, that no file of such a checkpoint or
/// model is called. Of a folder that holds nothing else, the folder ("src/").
std::vector<std::string> foreign_entries(const FileSystem& file_system, const std::string& folder,
                                         FolderContent content);

}  // namespace ferry
