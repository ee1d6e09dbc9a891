// `--verify` of commands that read a checkpoint to write another one.
#pragma once

#include <string>

#include "ckpt/engine/engine.h"
#include "ckpt/group/group.h"
#include "ckpt/integrity/verify.h"
#include "tools/terminal/command.h"

namespace ferry::tool {

/// --verify
void add_verify_option(Command& command, bool& verify);

/// Looks for damage in a source, as `ferry verify` does: rank 0, while the others wait. Of the
/// options, memory and threads count; `progress` as in ProgressLine. corrupt, with the first
/// problem, when there is any; otherwise as verify().
void verify_source(Group& group, const std::string& path, const std::string& iteration,
                   const EngineOptions& options, bool progress,
                   Masters masters = Masters::compared);

}  // namespace ferry::tool
