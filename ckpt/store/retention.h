// Which iterations of a run stay and which go, and why.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/store/run_folder.h"

namespace ferry {

struct Retention {
  std::optional<int64_t> keep_last;   // so many good ones with the highest numbers; >= 1
  std::optional<int64_t> keep_every;  // and those whose number it divides; >= 1
  /// Unfinished ones go too, when they are older than the last good one: of a lower number, and
  /// unchanged since it was written.
  bool unfinished = false;
};

/// Why an iteration that looks complete cannot be loaded, given its folder; empty: it can.
using ProblemOf = std::function<std::string(const std::string& folder)>;

struct Retained {
  IterationFolder folder;
  bool goes = false;
  std::string reason;  // "one of the last 3", "the tracker names it", "no option keeps it", ...
};

/// One decision an iteration folder, in the run's order. Goes what is complete and neither among
/// the last `keep_last` good ones, nor divisible by `keep_every`, nor the last good one, nor named
/// by the tracker; never `release`, a link, or one that `problem_of` (may be empty) objects to:
/// those are named and not counted. It is asked from the highest number down until enough are good.
/// invalid when nothing is given to keep, or a number is below 1.
std::vector<Retained> decide(const FileSystem& file_system, const RunFolder& run,
                             const Retention& retention, const ProblemOf& problem_of);

}  // namespace ferry
