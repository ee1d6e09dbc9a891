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

/// Copies all runs or throws: each run appears when it is complete. Metrics that are not numbers
/// are left out. Copies within one folder without new names get the suffix "-copy". Returns the new
/// names. invalid for names that exist, that lead elsewhere, or whose count is wrong.
std::vector<std::string> copy_runs(const std::shared_ptr<const FileSystem>& files,
                                   const CopyRuns& options);

}  // namespace ferry::tool
