// What `ferry convert` does: open, plan, check, write beside the target, put in place.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/checkpoint.h"
#include "ckpt/engine/engine.h"
#include "ckpt/group/group.h"
#include "ckpt/integrity/checks/vouchers.h"
#include "ckpt/megatron/torch_dist/core_release.h"
#include "convert/convert.h"
#include "convert/import.h"

namespace ferry::tool {

enum class ConvertTarget { hugging_face, safetensors, torch_dist, torch };

struct ConvertOptions {
  std::string source;
  std::string target;
  ConvertTarget to = ConvertTarget::hugging_face;
  OpenOptions open;
  ExportOptions model;                // dtype and max_shard_bytes also serve --to safetensors
  ImportOptions import;               // --to torch_dist and torch
  CoreRelease release = kNewestCore;  // --to torch_dist: that is to load it
  std::optional<int> zstd_level;      // --to torch_dist: compress
  bool optimizer = false;             // --to safetensors: the optimizer's tensors too
  bool overwrite = false;
  bool dry_run = false;
  VoucherOptions vouchers;
  EngineOptions engine;
  std::shared_ptr<Group> group = lone_group();  // processes that do it together, all of them so
};

struct ConvertReport {
  std::string source;  // the folder or file that was read
  std::string target;
  std::string source_format;
  std::optional<int64_t> iteration;
  std::string family;     // empty: unconverted
  ParallelLayout layout;  // of a run that was made
  /// What Megatron-LM's command line says to load it: "--load DIR", "--use-checkpoint-args", ...
  std::vector<std::string> flags;
  int64_t tensors = 0;
  int64_t parameters = 0;
  uint64_t bytes = 0;                                   // of all files
  std::vector<std::pair<std::string, uint64_t>> files;  // name, bytes
  std::vector<std::string> warnings;
  bool dry_run = false;
  double seconds = 0;  // of reading and writing
};

/// invalid when options exclude each other or the target stands in the way; otherwise as
/// open_checkpoint, plan_export, import_model, check and run. On any error the target is as it was.
ConvertReport convert(const ConvertOptions& options);

std::string to_text(const ConvertReport& report);
nlohmann::json to_json(const ConvertReport& report);

}  // namespace ferry::tool
