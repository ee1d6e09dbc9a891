#include "trainer/checkpoint/free_space.h"

#include <fmt/format.h>

#include <algorithm>

#include "ckpt/base/error.h"
#include "ckpt/store/prune.h"

namespace ferry {

namespace {

PruneReport pruned(const std::shared_ptr<const FileSystem>& files, const std::string& path,
                   std::optional<int64_t> keep_every, int64_t keep_last,
                   const ProblemOf& reason_to_stay, bool dry_run) {
  Retention retention;
  retention.keep_last = keep_last;
  retention.keep_every = keep_every;
  PruneOptions options;
  options.dry_run = dry_run;
  options.checks.reason_to_stay = reason_to_stay;
  return prune(files, path, retention, options);
}

// The size of the newest removable checkpoint, as an estimate of the next one's.
uint64_t bytes_of_newest(const PruneReport& report) {
  uint64_t bytes = 0;
  for (const PrunedItem& item : report.iterations) {
    if (item.goes) bytes = item.bytes;
  }
  return bytes;
}

}  // namespace

void make_room(const std::shared_ptr<const FileSystem>& files, const std::string& path,
               std::optional<int64_t> keep_every, const ProblemOf& reason_to_stay,
               const std::function<void(std::string_view text)>& log) {
  try {
    const PruneReport all = pruned(files, path, keep_every, 1, reason_to_stay, true);
    const uint64_t needed = bytes_of_newest(all);
    const auto is_full = [&] {
      const auto free = files->free_space(path);
      return free && free->bytes < needed;
    };
    for (auto keep = std::ssize(all.iterations) - 1; keep >= 1 && is_full(); --keep) {
      const PruneReport report = pruned(files, path, keep_every, keep, reason_to_stay, false);
      for (const PrunedItem& item : report.iterations) {
        if (!item.goes) continue;
        log(fmt::format("removed {}/{}: the next checkpoint needs its {} bytes\n", path, item.name,
                        item.bytes));
      }
    }
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::not_found) return;  // nothing is saved there yet
    log(fmt::format("WARNING: could not free space for a checkpoint: {}\n", error.what()));
  }
}

}  // namespace ferry
