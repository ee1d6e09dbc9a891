// The command line of the training program, out of a launch configuration.
#pragma once

#include <string>
#include <vector>

#include "tools/launch/configuration.h"

namespace ferry::tool {

/// All of them, without the program itself: what the configuration says, then what a launch adds
/// unless it says something else (null: leave out): --save, --load, --tensorboard-dir,
/// --log-progress, --exit-signal-handler, --exit-signal and --trigger-path.
std::vector<std::string> training_words(const LaunchConfiguration& configuration);

}  // namespace ferry::tool
