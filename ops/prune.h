// Deletes old iterations of a run folder.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "ckpt/engine/engine.h"
#include "ckpt/store/options.h"

namespace ferry {

struct PruneRunOptions {
  Retention keep;
  bool verify = false;   // check every byte of the last good iteration before anything is removed
  bool dry_run = false;  // decide, and remove nothing
  std::function<void(const Progress&)> progress;         // while files are removed
  std::function<void(const Progress&)> verify_progress;  // while bytes are checked
  const std::atomic<bool>* cancel = nullptr;             // set: stop soon with Error(cancelled)
};

/// The other prune() (ckpt/store/prune.h), where an iteration counts as good when it opens, all its
/// files are there and complete, and the optimizer state that was saved with it can be read.
PruneReport prune(const std::string& run, const PruneRunOptions& options);

}  // namespace ferry
