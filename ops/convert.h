// Writes the model of a checkpoint in another format: for Hugging Face, as plain safetensors, or
// for Megatron-LM.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/checkpoint.h"
#include "convert/options.h"
#include "ops/write_options.h"

namespace ferry {

enum class ConvertTarget { hugging_face, safetensors, torch_dist, torch };

struct ConvertOptions {
  std::string source;  // a folder or file of any format that is read, or a run folder
  std::string target;  // folder to create; for Megatron-LM a run folder, which gets a release
  ConvertTarget to = ConvertTarget::hugging_face;
  OpenOptions open;
  ExportOptions model;        // dtype and max_shard_bytes also serve plain safetensors
  ImportOptions import;       // for Megatron-LM
  bool from_masters = false;  // the optimizer's fp32 master weights instead of the weights
  std::string fill_from;      // for Hugging Face: the model that gives the tensors that are missing
  bool optimizer = false;     // safetensors, torch_dist, torch: the optimizer's state too
  /// For a state dict: the folder of config.json, the model's tensors, and their names.
  std::string config_folder;
  std::vector<std::string> only;
  std::vector<Rename> renames;
  bool base_only = false;  // of a model with an adapter inside: without it
  /// Modules that are to load a run of Megatron-LM's; nothing: transformer_engine.
  std::optional<bool> transformer_engine;
  WriteOptions write;  // release, zstd_level: torch_dist alone
};

struct ConvertReport {
  std::string source;  // the folder or file that was read
  std::string target;
  std::string source_format;
  std::optional<int64_t> iteration;
  std::string family;     // empty: unconverted
  ParallelLayout layout;  // of a run that was made
  /// What Megatron-LM's own command line says to load it: "--load DIR", "--use-checkpoint-args",
  /// ...
  std::vector<std::string> load_with;
  /// Where the run has an iteration already, its tracker names that: with `release` in its place,
  /// Megatron-LM loads what was made.
  struct OtherIteration {
    int64_t iteration = 0;
    std::string tracker;  // the file that names it
  };
  std::optional<OtherIteration> loaded_instead;
  int64_t tensors = 0;
  int64_t parameters = 0;
  int64_t integers = 0;  // of quantised weights, whose parameters cannot be counted
  WrittenFiles written;
  std::vector<std::string> warnings;  // they name options as option() does
};

/// invalid when options exclude each other or the target stands in the way; otherwise as
/// open_checkpoint, plan_export, import_model, check and run. On any error the target is as it was.
/// Messages name options as option() does (ckpt/base/option_name.h).
ConvertReport convert(const ConvertOptions& options);

}  // namespace ferry
