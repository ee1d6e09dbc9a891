// How a command writes, whatever it is that it writes.
#pragma once

#include <memory>
#include <optional>

#include "ckpt/engine/engine.h"
#include "ckpt/group/group.h"
#include "ckpt/integrity/integrity_options.h"
#include "ckpt/megatron/torch_dist/torch_dist_options.h"
#include "tools/terminal/command.h"

namespace ferry::tool {

struct WriteOptions {
  CoreRelease release = kNewestCore;  // of Megatron Core that is to load it
  std::optional<int> zstd_level;      // compresses the items of the plan; it was planned for that
  bool overwrite = false;             // what is there may be replaced
  bool dry_run = false;               // plans and checks all, and writes nothing
  IntegrityOptions integrity;
  EngineOptions engine;
  /// Processes that do it together, all of them so; compressing is rank 0's alone.
  std::shared_ptr<Group> group = lone_group();
};

// What an option's value goes to must outlive the parser.

/// --overwrite, --no-manifest, --integrity, --memory, --threads and --dry-run. `replaced` is what
/// --overwrite replaces.
void add_write_options(Command& command, WriteOptions& options, const char* replaced);

/// --core-release and --compress. `help_group`: the heading of --help under which they stand.
void add_megatron_options(Command& command, WriteOptions& options, const char* help_group);

}  // namespace ferry::tool
