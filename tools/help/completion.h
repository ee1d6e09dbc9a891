// Completions of ferry's commands, options and their words for shells, from what --help says.
#pragma once

#include <string>

#include "tools/help/description.h"

namespace ferry::tool {

/// A script that bash sources; needs no bash-completion.
std::string bash_completion(const CommandDescription& program);
/// A file `_ferry` for a folder of $fpath.
std::string zsh_completion(const CommandDescription& program);
/// A file `ferry.fish` for fish's folder of completions.
std::string fish_completion(const CommandDescription& program);

}  // namespace ferry::tool
