// Deletes old iterations of a run folder.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "ckpt/engine/engine.h"
#include "ckpt/store/options.h"

namespace ferry {

struct PruneRunOptions {
  Retention keep = {};
  bool verify = false;   // check every byte of the last good iteration before anything is removed
  bool dry_run = false;  // decide, and remove nothing
  std::function<void(const Progress&)> progress = {};         // while files are removed
  std::function<void(const Progress&)> verify_progress = {};  // while bytes are checked
  const std::atomic<bool>* cancel = nullptr;  // set: stop soon with Error(cancelled)
};

/// Removes the iterations that `options.keep` does not keep, and what dead writers left. It never
/// removes what the tracker names, `release`, the last good iteration, unfinished ones unless asked
/// to, or what another process writes or reads. An iteration is good when it opens, all its files
/// are there and complete, and the optimizer state that was saved with it can be read. Iterations
/// are renamed before anything is deleted, so that no reader finds one with files missing.
///
/// not_found when `run` is not a run folder; invalid when nothing is given to keep, or a number is
/// below 1; cancelled: what was renamed and is whole is put back, and the message says how many
/// iterations were removed. On another error what was renamed goes with the next prune.
PruneReport prune(const std::string& run, const PruneRunOptions& options);

}  // namespace ferry
