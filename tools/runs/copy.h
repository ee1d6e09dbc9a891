// Copies of runs for another project folder: their logs and metrics, without their checkpoints.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ckpt/io/file_system.h"

namespace ferry::tool {

struct CopyRuns {
  std::string from, to;            // folders of runs
  std::vector<std::string> runs;   // below `from`
  std::vector<std::string> names;  // below `to`; empty: as they are
};

/// Copies all or says why not: each run appears when it is complete. Values of metrics that are no
/// numbers are left out. Within one folder copies without names get "-copy" behind theirs. Returns
/// the new names. invalid for names that are there, that lead elsewhere, or that are not as many.
std::vector<std::string> copy_runs(const std::shared_ptr<const FileSystem>& files,
                                   const CopyRuns& wanted);

}  // namespace ferry::tool
