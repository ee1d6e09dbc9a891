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

#include "ckpt/open.h"
#include "convert/convert.h"
#include "convert/import.h"
#include "tools/output/write_options.h"
#include "tools/terminal/written.h"

namespace ferry::tool {

enum class ConvertTarget { hugging_face, safetensors, torch_dist, torch };

struct ConvertOptions {
  std::string source;
  std::string target;
  ConvertTarget to = ConvertTarget::hugging_face;
  OpenOptions open;
  ExportOptions model;        // dtype and max_shard_bytes also serve --to safetensors
  ImportOptions import;       // --to torch_dist and torch
  bool from_masters = false;  // the optimizer's fp32 masters instead of the weights
  std::string fill_from;      // --to hf: the model that gives the tensors that are missing
  bool optimizer = false;     // --to safetensors, torch_dist, torch: the optimizer's state too
  /// Of a state dict: where config.json is, which tensors are the model's, and their names.
  std::string config_folder;
  std::vector<std::string> only;
  std::vector<std::pair<std::string, std::string>> renames;
  bool base_only = false;  // of a model with an adapter inside: without it
  /// Modules that are to load a run of Megatron-LM's; nothing: transformer_engine.
  std::optional<bool> transformer_engine;
  WriteOptions write;  // release, zstd_level: --to torch_dist
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
  /// What must be done before that loads it; empty: nothing.
  std::string before_loading;
  int64_t tensors = 0;
  int64_t parameters = 0;
  int64_t integers = 0;  // of quantised weights, whose parameters cannot be counted
  WrittenFiles written;
  std::vector<std::string> warnings;
};

/// Opens the checkpoint to convert, or one to fill it from.
Checkpoint open_source(const std::shared_ptr<const FileSystem>& file_system,
                       const std::string& path, const ConvertOptions& options);

/// invalid when options exclude each other or the target stands in the way; otherwise as
/// open_checkpoint, plan_export, import_model, check and run. On any error the target is as it was.
ConvertReport convert(const ConvertOptions& options);

std::string to_text(const ConvertReport& report);
nlohmann::json to_json(const ConvertReport& report);

}  // namespace ferry::tool
