// Writes a training checkpoint at another parallel layout or in another format, optimizer state
// included.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/base/dtype.h"
#include "ckpt/checkpoint.h"
#include "ckpt/megatron/model/target_options.h"
#include "ops/write_options.h"

namespace ferry {

enum class ReshardFormat { torch_dist, torch, fsdp_dtensor, dcp };

/// Form of the optimizer's state; `as_source`: per parameter where the format can, with or without
/// distributed optimizer as the source had it.
enum class ReshardOptimizer { as_source, fully_reshardable, dp_reshardable, legacy, none };

/// Form of the optimizer's copies of bf16 parameters. `as_source`: remainders where the source has
/// them and the target can, fp32 otherwise.
enum class MasterForm { as_source, fp32, remainders };

/// What Megatron-LM builds the model of: layers of a GPT are attention and an MLP or experts, those
/// of a hybrid model one of them each.
enum class ModelClass { as_source, gpt, hybrid };

struct ReshardOptions {
  std::string source = {};
  std::string target = {};  // a run folder, or with `dcp` the checkpoint's own
  OpenOptions open = {};
  ReshardFormat to = ReshardFormat::torch_dist;
  ReshardOptimizer optimizer = ReshardOptimizer::as_source;
  MasterForm masters = MasterForm::as_source;
  ModelClass model = ModelClass::as_source;
  bool repair_masters = false;     // puts optimizer state back that Megatron Core stored shifted
  std::string config_folder = {};  // of config.json, for a run without arguments; empty: the run's
  ParallelTarget layout = {};
  std::optional<int64_t> vocabulary_divisor = {};
  std::optional<bool> transformer_engine =
      {};  // modules that are to load it; nothing: the source's
  std::optional<DType> dtype = {};
  std::vector<std::string> only = {}, drop = {};  // shell patterns of names
  std::vector<Rename> renames = {};
  WriteOptions write = {};  // release: of torch_dist; zstd_level: not of torch
};

struct ReshardReport {
  struct Side {
    std::string path, format, optimizer;  // optimizer: empty when there is none
    bool remainders = false;              // masters are stored as 16-bit remainders
    ParallelLayout layout;
  };
  Side source, target;
  std::optional<int64_t> iteration;
  int64_t tensors = 0;
  int64_t parameters = 0;  // elements of the model's tensors
  WrittenFiles written;
  std::vector<std::string> warnings;  // they name options as option() does
};

/// invalid when options exclude each other or the target stands in the way; not_found, corrupt and
/// unsupported as open_checkpoint(); unsupported for a checkpoint that is not of a Megatron-LM run,
/// or that the layout or format cannot hold; io and exhausted from the file system; busy when the
/// source was replaced meanwhile; cancelled. On any error the target is as it was. Messages name
/// options as option() does (ckpt/base/error.h).
ReshardReport reshard(const ReshardOptions& options);

}  // namespace ferry
