// Which iterations of a run stay and which go, and why.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/store/options.h"
#include "ckpt/store/run_folder.h"

namespace ferry {

/// Why an iteration that looks complete is not good, given its folder; empty: it is.
using ProblemOf = std::function<std::string(const std::string& folder)>;

/// What makes an iteration that looks complete a good one. An empty function has no objection.
struct IterationChecks {
  ProblemOf reason_to_stay;   // asked of every one: what it says stays, and is not counted
  ProblemOf problem_of;       // asked of every one that is counted
  ProblemOf problem_of_last;  // asked of that which is to be the last good one, too
};

struct Retained {
  IterationFolder folder;
  bool goes = false;
  std::string reason;  // "one of the last 3", "the tracker names it", "not kept by any option", ...
};

/// One decision an iteration folder, in the run's order. Goes what is complete and neither among
/// the last `keep_last` good ones, nor divisible by `keep_every`, nor the last good one, nor named
/// by the tracker; never `release`, a link, or what a link in the run folder leads to; nor one that
/// `checks` objects to: those are named and not counted. It is asked from the highest number down
/// until enough are good.
/// invalid when nothing is given to keep, or a number is below 1.
std::vector<Retained> decide(const FileSystem& file_system, const RunFolder& run,
                             const Retention& retention, const IterationChecks& checks);

}  // namespace ferry
