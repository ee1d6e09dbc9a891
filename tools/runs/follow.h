// A run's lines as they come.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ckpt/io/file_system.h"

namespace ferry::tool {

struct FollowOptions {
  bool once = false;             // what is there, and no more
  std::optional<int64_t> until;  // an iteration after which it ends
  int64_t lines = 10;            // of what is there
};

/// Prints a line for each iteration, evaluation, save and exit in the run's files. Ends with the
/// run's last planned iteration or with `until`; false where a signal (Ctrl-C) ended it before.
/// not_found where there is nothing of a run.
bool follow_run(const FileSystem& files, const std::string& paths, const FollowOptions& options);

}  // namespace ferry::tool
