// One rank opens a checkpoint for all.
#pragma once

#include <memory>
#include <string>

#include "ckpt/group/group.h"
#include "ckpt/open.h"

namespace ferry {

/// Rank 0 opens the checkpoint and gives all ranks of the group what it found; the others touch no
/// file before they read from it. All must see the same file system. What open_checkpoint() throws
/// on rank 0, all throw alike.
///
/// Rank 0's result holds the mark that keeps other processes from removing the checkpoint, and so
/// must live as long as any rank reads. On the others `notes`, `damage` and `mark` are empty.
Checkpoint open_together(std::shared_ptr<const FileSystem> file_system, const std::string& path,
                         Group& group, const OpenOptions& options = {});

}  // namespace ferry
