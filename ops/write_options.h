// How an operation writes, whatever it is that it writes, and what it wrote.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/engine/engine.h"
#include "ckpt/group/group.h"
#include "ckpt/integrity/integrity_options.h"
#include "ckpt/megatron/torch_dist/torch_dist_options.h"

namespace ferry {

struct WriteOptions {
  CoreRelease release = kNewestCore;  // of Megatron Core that is to load it
  std::optional<int> zstd_level;      // compresses what is stored; 1 to 19
  bool overwrite = false;             // what is there may be replaced
  bool dry_run = false;               // plans and checks all, and writes nothing
  IntegrityOptions integrity;
  /// Memory, threads, progress and cancellation. A cancelled operation throws Error(cancelled) and
  /// leaves the target as it was. `engine.cancel` may be set from a signal handler.
  EngineOptions engine;
  /// Processes that do it together, all of them so; compressing is rank 0's alone.
  std::shared_ptr<Group> group = lone_group();
};

struct WrittenFiles {
  std::vector<std::pair<std::string, uint64_t>> files;  // name, bytes
  bool dry_run = false;
  double seconds = 0;                  // of reading and writing
  std::optional<uint64_t> free_bytes;  // of a dry run: at the target's place, where that is known

  uint64_t bytes() const;
};

}  // namespace ferry
