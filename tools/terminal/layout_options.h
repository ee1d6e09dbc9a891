// The options that say how a target is spread over ranks, the same for every command.
#pragma once

#include <optional>

#include "ckpt/megatron/model/target_options.h"
#include "tools/terminal/command.h"

namespace ferry::tool {

/// `silent` says what a size is that is not given: "1", "stays as it is".
void add_layout_options(Command& command, ParallelTarget& layout, const char* silent);

/// --transformer-impl.
Option add_modules_option(Command& command, std::optional<bool>& transformer_engine);

}  // namespace ferry::tool
