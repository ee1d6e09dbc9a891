// Which iteration of a run folder is checked, and what is wrong with the run around it.
#pragma once

#include <string>
#include <vector>

#include "ckpt/integrity/verify.h"
#include "ckpt/store/run_folder.h"

namespace ferry {

struct RunChoice {
  IterationFolder folder;
  std::vector<Problem> problems;   // of the tracker; that the iteration is unfinished
  std::vector<std::string> notes;  // other iterations that are unfinished, ...
};

/// The iteration that is `requested`, finished or not; else the one that the tracker leads to;
/// else, as it leads nowhere, the latest complete one; else the latest. not_found when that is not
/// there, or none is; invalid when `requested` is not an iteration. `file_system` must outlive the
/// result.
RunChoice choose_to_verify(const FileSystem& file_system, const std::string& path,
                           const std::string& requested);

}  // namespace ferry
