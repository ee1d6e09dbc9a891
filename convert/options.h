// How a model is converted: to Hugging Face (plan_export), and for Megatron-LM (import_model).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/base/dtype.h"
#include "ckpt/megatron/model/target_options.h"

namespace ferry {

struct Checkpoint;  // ckpt/checkpoint.h

struct ExportOptions {
  std::optional<std::string> family = {};  // instead of recognising it
  std::optional<int64_t> vocab_size = {};  // rows to keep of the embedding and the output layer
  bool cut_tokens = false;                 // let vocab_size cut rows of tokens that are known
  bool keep_padding = false;               // keep all rows; excludes vocab_size
  std::optional<DType> dtype = {};  // of floating-point tensors; those kept in fp32 by design stay
  /// The weights of linear layers in blocks of fp8 with their scales, and config.json says so.
  bool quantise_fp8 = false;
  /// For a Hugging Face model: not compared with its config.json.
  bool as_is = false;
  bool ignore_index = false;  // of one whose index and shards disagree: take the shards
  uint64_t max_shard_bytes = 5'000'000'000;
  std::string tokenizer_folder =
      {};  // tokenizer files to copy; empty: those of the checkpoint, if any
  /// For a Hugging Face model: the folder of config.json and of what goes with it; empty: its own.
  std::string config_folder = {};
  bool top_files_only = false;  // what the folders in that hold stays there
  /// A Hugging Face model whose tensors stand in for those that the checkpoint lacks (a vision
  /// tower, prediction layers), and whose config.json and other files are taken.
  const Checkpoint* original = nullptr;
};

struct ImportOptions {
  std::optional<std::string> family = {};         // refuse another than this
  std::vector<std::string> ignored_members = {};  // of config.json: left out, with a warning
  ParallelTarget layout = {};                     // 1 rank of each kind where it is silent
  std::optional<DType> dtype = {};  // of floating-point tensors; those kept in fp32 by design stay
  /// The vocabulary is padded with rows of zeros to a multiple of this times the tensor-parallel
  /// size, as Megatron-LM pads its own.
  int64_t make_vocab_size_divisible_by = 128;
  bool drop_unknown = false;  // leave out tensors that the family has not; else they are refused
  std::string config_folder = {};  // of config.json; empty: next to the weights
  bool ignore_index = false;       // where index and shards disagree: take the shards
  bool optimizer = false;          // the optimizer's state too, which the checkpoint must hold
  bool any_dtype = false;          // let layers of one tensor differ in type: to look, not to write
  bool top_files_only = false;     // of config.json's folder, what its folders hold stays there
  std::string tokenizer_folder = {};  // tokenizer files to copy; empty: those next to config.json
  std::string tokenizer_model = {};   // the argument of that name: where those files will be
};

}  // namespace ferry
