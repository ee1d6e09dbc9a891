// Writes the model of a checkpoint in another format: for Hugging Face, as plain safetensors, or
// for Megatron-LM. Or reads it under the names of Hugging Face, without writing anything.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/base/dtype.h"
#include "ckpt/checkpoint.h"
#include "ckpt/megatron/model/target_options.h"
#include "ckpt/memory/load.h"
#include "ops/write_options.h"

namespace ferry {

enum class ConvertTarget { hugging_face, safetensors, torch_dist, torch };

/// Options that the target does not use are refused, not ignored.
struct ConvertOptions {
  static constexpr uint64_t kShardBytes = 5'000'000'000;
  static constexpr int64_t kVocabularyDivisor = 128;

  std::string source = {};  // a folder or file of any format that is read, or a run folder
  /// The folder to create. For Megatron-LM: a run folder, which gets a release, or with `optimizer`
  /// the iteration.
  std::string target = {};
  ConvertTarget to = ConvertTarget::hugging_face;
  OpenOptions open = {};

  /// Instead of recognising it: "llama", "deepseek_v3", ...
  std::optional<std::string> family = {};
  std::optional<DType> dtype = {};  // of floating-point tensors; those kept in fp32 by design stay
  bool from_masters = false;        // the optimizer's fp32 master weights instead of the weights
  bool optimizer = false;           // safetensors, torch_dist, torch: the optimizer's state too
  bool base_only = false;           // of a model with an adapter inside: without it
  std::string tokenizer_folder = {};  // tokenizer files to copy; empty: the checkpoint's, if any
  bool ignore_index = false;          // of a Hugging Face folder whose index and shards disagree

  // For Hugging Face; max_shard_bytes for plain safetensors, too.
  std::optional<int64_t> vocab_size = {};  // rows to keep of the embedding and the output layer
  bool cut_tokens = false;                 // let vocab_size cut rows of tokens that are known
  bool keep_padding = false;               // keep all rows; excludes vocab_size
  /// Linear layers become codes with scales, and config.json says so: "fp8", "fp8-ue8m0",
  /// "fp8-channel", "fp8-tensor", "mxfp8", "mxfp4", "mxfp4-gpt-oss", "nvfp4", "nvfp4-packed",
  /// "int4", "int4-g128", "int4-zp", "int4-g128-zp".
  std::string quantise = {};
  bool as_is = false;          // a Hugging Face model is not compared with its config.json
  std::string fill_from = {};  // the model that gives the tensors that are missing
  uint64_t max_shard_bytes = kShardBytes;

  // For Megatron-LM.
  ParallelTarget layout = {};  // 1 rank of each kind where it is silent
  /// The vocabulary is padded with rows of zeros to a multiple of this times the tensor-parallel
  /// size, as Megatron-LM pads its own.
  int64_t make_vocab_size_divisible_by = kVocabularyDivisor;
  /// Modules that are to load the run; nothing: transformer_engine.
  std::optional<bool> transformer_engine = {};

  // For a state dict: where config.json is, which tensors belong to the model, and their names.
  std::string config_folder = {};
  std::vector<std::string> only = {};
  std::vector<Rename> renames = {};
  bool drop_unknown = false;  // leave out tensors that the family has not; else they are refused
  std::vector<std::string> ignored_members = {};  // of config.json: left out, with a warning

  WriteOptions write = {};  // release, zstd_level: torch_dist alone
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
  /// The run already has an iteration; until its tracker file says `release`, Megatron-LM loads
  /// that iteration.
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

/// invalid when options exclude each other or the target exists already; mismatch when tensors are
/// missing, left over or of another shape than the family's, or when no family fits; unsupported
/// when the target cannot express what the source's model computes; not_found for a folder that is
/// not there; exhausted for too little memory or disk space; busy when another process writes the
/// target or replaces the source; otherwise as open_checkpoint(). On any error the target is as it
/// was.
/// A Hugging Face folder that was written is checked as check() does (ops/check.h), by its headers:
/// what is found is among the warnings.
/// Messages name options as option() does (ckpt/base/error.h).
ConvertReport convert(const ConvertOptions& options);

/// A checkpoint's model as convert() would write it for Hugging Face, to be read: its tensors are
/// made of the checkpoint's as they are read.
struct ModelView {
  std::string family;  // empty: unknown, and not converted
  TensorSet tensors;   // in the order of the files that convert() would write
  int64_t parameters = 0;
  int64_t integers = 0;  // of quantised weights, whose parameters cannot be counted
  /// Name and content: config.json, generation_config.json, the tokenizer's files, ...; no index of
  /// the weights, which are in no files.
  std::vector<std::pair<std::string, std::string>> files;
  std::vector<std::string> warnings;  // they name options as option() does
};

/// Options as those of convert() to Hugging Face, but for those of what is written (`target`,
/// `max_shard_bytes`, `write`), which must be left alone. Reads no tensor but what decides on the
/// others (scales of quantised ones, parts of optimizers). Errors as convert().
ModelView view_as_hugging_face(const ConvertOptions& options);

/// The same of what open_checkpoint() opened; `source` and `open`, too, must be left alone. The
/// view does not refer to `checkpoint`.
ModelView view_as_hugging_face(const Checkpoint& checkpoint, const ConvertOptions& options = {});

}  // namespace ferry
