// How a run folder is changed: how an iteration comes into it (RunStore::begin), which iterations
// stay in it (prune), and what a prune did.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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
  /// The folder's name in place of the iteration's; the tracker then stays as it is (`tracker` is
  /// never). Empty: iter_0000100.
  std::string folder = {};
};

/// Which iterations stay; retention.h says what else does.
struct Retention {
  std::optional<int64_t> keep_last = {};   // so many good ones with the highest numbers; >= 1
  std::optional<int64_t> keep_every = {};  // and those whose number it divides; >= 1
  /// Unfinished ones go too, when they are older than the last good one: of a lower number, and
  /// unchanged since it was written.
  bool unfinished = false;
};

struct PrunedItem {
  std::string name;                  // in the run folder
  std::optional<int64_t> iteration;  // of an iteration's folder other than release
  bool goes = false;                 // is removed, or would be
  std::string reason;
  uint64_t bytes = 0;  // of its files
};

struct PruneReport {
  std::vector<PrunedItem> iterations;  // rising; release last
  std::vector<PrunedItem> leftovers;   // of writers, dead or of unknown life
  uint64_t bytes = 0;                  // of what goes
  std::vector<std::string> notes;
  bool dry_run = false;
};

}  // namespace ferry
