// Room for a checkpoint, where a run may take it from its older ones (--free-space-for-saves).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "ckpt/io/file_system.h"
#include "ckpt/store/retention.h"

namespace ferry {

/// Removes the oldest checkpoints of a run folder, one after another, until there is room for one
/// as large as they are. The last good one stays, whatever is free then, and so do those whose
/// iteration `keep_every` divides, what `reason_to_stay` names and what prune() never takes. `tell`
/// hears of what went, and of what could not go, which is no error: then the save has to say that
/// the disk is full.
void make_room(const std::shared_ptr<const FileSystem>& files, const std::string& path,
               std::optional<int64_t> keep_every, const ProblemOf& reason_to_stay,
               const std::function<void(std::string_view text)>& tell);

}  // namespace ferry
