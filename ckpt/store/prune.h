// Removes iterations of a run folder that no rule keeps, and what dead writers left.
//
// What goes is first renamed, under locks and while nobody else moves the tracker, to names that
// no program takes for a checkpoint; then the run folder is synced; only then is anything deleted.
// So no reader ever finds a checkpoint with files missing, whenever this is killed, and the next
// prune or save deletes what is left.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ckpt/engine/engine.h"
#include "ckpt/io/file_system.h"
#include "ckpt/store/options.h"
#include "ckpt/store/retention.h"

namespace ferry {

struct PruneOptions {
  bool dry_run = false;
  IterationChecks checks;  // without it what looks complete is good
  /// Called from one thread after each file, with bytes removed so far.
  std::function<void(const Progress&)> progress;
  /// When set: put back what was renamed and is whole, and stop with Error(cancelled), which says
  /// how many iterations were removed.
  const std::atomic<bool>* cancel = nullptr;
};

/// Applies `retention` (see decide()) to the run folder at `path`. What another ferry process
/// writes or reads stays, too, and so does what any process of this host has a file of open, as far
/// as files_open_below() sees. not_found when `path` is not a run folder. On an error in the
/// middle, what was renamed so far is gone or goes with the next prune; the rest is as it was.
PruneReport prune(std::shared_ptr<const FileSystem> file_system, const std::string& path,
                  const Retention& retention, const PruneOptions& options);

}  // namespace ferry
