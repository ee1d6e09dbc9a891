// Saves of formats whose files combine the memory of several ranks.
#pragma once

#include <string>
#include <vector>

#include "ckpt/group/group.h"
#include "ckpt/memory/save.h"
#include "ckpt/memory/snapshot_format.h"
#include "ckpt/store/run_store.h"

namespace ferry {

/// As save(), by all ranks of the group: each plans all files and writes what it holds of them.
std::vector<std::string> save_common_files(const FileSystem& file_system, const RunStore& store,
                                           const Snapshot& own, const CommonFilesFormat& format,
                                           Group& group, const SaveOptions& options);

}  // namespace ferry
