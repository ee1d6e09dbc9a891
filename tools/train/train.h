// `ferry train`: a training run, its ranks as threads or as the processes of a launcher.
#pragma once

#include <span>
#include <string>

namespace ferry::tool {

/// `words` are those behind "ferry train". Returns when the run is over.
void run_train(std::span<const std::string> words);

}  // namespace ferry::tool
