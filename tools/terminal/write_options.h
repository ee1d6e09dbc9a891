// Options of commands that write a checkpoint.
#pragma once

#include "ops/write_options.h"
#include "tools/terminal/command.h"

namespace ferry::tool {

// What an option's value goes to must outlive the parser.

/// --overwrite, --no-manifest, --integrity, --memory, --threads and --dry-run. `replaced` is what
/// --overwrite replaces.
void add_write_options(Command& command, WriteOptions& options, const char* replaced);

/// --core-release and --compress. `help_group`: the heading of --help under which they stand.
void add_megatron_options(Command& command, WriteOptions& options, const char* help_group);

}  // namespace ferry::tool
