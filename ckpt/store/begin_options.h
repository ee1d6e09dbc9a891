// How an iteration comes into a run folder: what RunStore::begin() may do there.
#pragma once

#include <string>

#include "ckpt/io/staging/write_lock_options.h"

namespace ferry {

/// What a commit does to the tracker.
enum class TrackerMove {
  forward,  // names the new iteration, unless it names a later one that is complete
  always,   // names the new iteration: of a run that went back to an earlier one
  never,
};

struct BeginOptions {
  bool overwrite = false;  // an iteration that is there, whole or not, is replaced
  TrackerMove tracker = TrackerMove::forward;
  WriteLockOptions write_lock;
  /// The folder's name in place of the iteration's; the tracker then stays as it is (`tracker` is
  /// never). Empty: iter_0000100.
  std::string folder;
};

}  // namespace ferry
