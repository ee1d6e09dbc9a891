// How an operation writes, whatever it is that it writes, under which names, and what it wrote.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ckpt/engine/engine.h"
#include "ckpt/group/group.h"
#include "ckpt/integrity/verify.h"
#include "ckpt/megatron/model/target_options.h"

namespace ferry {

struct WriteOptions {
  CoreRelease release = kNewestCore;   // of Megatron Core that is to load it
  std::optional<int> zstd_level = {};  // compresses what is stored; 1 to 19
  bool overwrite = false;              // what is there may be replaced
  bool dry_run = false;                // plans and checks all, and writes nothing
  IntegrityOptions integrity = {};
  /// Memory, threads, progress and cancellation. A cancelled operation throws Error(cancelled) and
  /// leaves the target as it was. `engine.cancel` may be set from a signal handler.
  EngineOptions engine = {};
  /// Processes that do it together: all pass the same options. Rank 0 alone compresses. Quantising
  /// (ConvertOptions::quantise) refuses more than one.
  std::shared_ptr<Group> group = lone_group();
};

struct WrittenFiles {
  std::vector<std::pair<std::string, uint64_t>> files;  // name, bytes
  bool dry_run = false;
  double seconds = 0;                  // of reading and writing
  std::optional<uint64_t> free_bytes;  // of a dry run: at the target's place, where that is known

  uint64_t bytes() const;
};

/// Old and new name of tensors: whole names, or both with one '*', which stands for the same text.
using Rename = std::pair<std::string, std::string>;

/// The new name by the first rename that fits, or `name`. `used`, if given, notes which that was.
std::string renamed(std::string_view name, const std::vector<Rename>& renames,
                    std::vector<bool>* used = nullptr);

}  // namespace ferry
