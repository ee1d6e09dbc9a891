// Frees disk space for a checkpoint by removing older ones (--free-space-for-saves).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "ckpt/io/file_system.h"
#include "ckpt/store/retention.h"

namespace ferry {

/// Removes the oldest checkpoints of a run folder one by one until another of their size fits.
/// Always keeps the last good one, iterations divisible by `keep_every`, those with a
/// `reason_to_stay`, and whatever prune() never removes. Reports what was removed to `log`. A
/// failure is logged and is not an error: the save itself reports a full disk.
void make_room(const std::shared_ptr<const FileSystem>& files, const std::string& path,
               std::optional<int64_t> keep_every, const ProblemOf& reason_to_stay,
               const std::function<void(std::string_view text)>& log);

}  // namespace ferry
