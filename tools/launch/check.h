// Whether a run that is launched can train: what ferry train --dry-run checks, before anything is
// written or waits in a queue.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tools/launch/configuration.h"

namespace ferry::tool {

struct LaunchCheck {
  /// The iteration that training ends with; 0 where it is not known.
  int64_t last_iteration = 0;
  /// What was changed, or could not be checked on this machine: a sentence each.
  std::vector<std::string> notes;
  std::string plan;  // what ranks take, for people; empty where it is not known
};

/// Where the job starts: on this machine at once, or where and when other files may be there.
enum class LaunchPlace : uint8_t { here_and_now, elsewhere };

/// `words` are the training program's. Throws what ferry train would; of a job that starts here and
/// now, also what it would find in the files of the tokenizer, the data and the checkpoint. Of
/// Megatron-LM, what ferry alone has not (unsupported) becomes a note.
LaunchCheck check_launch(const LaunchConfiguration& configuration,
                         std::span<const std::string> words, LaunchPlace place);

}  // namespace ferry::tool
