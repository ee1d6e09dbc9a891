// Megatron model checkpoints as Hugging Face folders.
//
// plan_export() turns a checkpoint's catalog and arguments into a plan for the weights and the
// small files that go with them. It reads no tensor data: the plan is known to the last byte
// before a byte moves. Which tensor goes where is said by one table a family (convert/families/).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/base/dtype.h"
#include "ckpt/checkpoint.h"
#include "ckpt/core/plan.h"
#include "ckpt/summary.h"

namespace ferry {

/// Describes a Megatron (torch_dist, torch, nemo) or Hugging Face checkpoint for people. Never
/// throws for a model it does not know: `family` stays empty and `reasons` say why.
ModelSummary recognise(const Checkpoint& checkpoint);

/// Names of the families that plan_export() can write, sorted.
std::vector<std::string> export_families();

struct ExportOptions {
  std::optional<std::string> family = {};  // instead of recognising it
  std::optional<int64_t> vocab_size = {};  // rows to keep of the embedding and the output layer
  bool cut_tokens = false;                 // let vocab_size cut rows of tokens that are known
  bool keep_padding = false;               // keep all rows; excludes vocab_size
  std::optional<DType> dtype = {};  // of floating-point tensors; those kept in fp32 by design stay
  /// The weights of linear layers in a form of quantised_forms() (convert/export/quantise.h), and
  /// config.json says so; empty: as they are.
  std::string quantise = {};
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

/// A file to be copied as it is.
struct CopiedFile {
  std::string from;  // path as given to the checkpoint's FileSystem
  std::string name;  // inside the output folder
  uint64_t bytes = 0;
};

/// A tensor that is made from nothing, whose bytes a plan has as a literal.
struct ConstantTensor {
  Entry entry;  // with its place in the plan's target
  std::string bytes;
};

struct Export {
  std::string family;
  Plan plan;  // the weights' files; reads the checkpoint and, where it is filled up, the original
  std::vector<ConstantTensor> constants;  // of the plan, which are none of its target's entries
  /// (name inside the output folder, content): config.json, generation_config.json unless it is one
  /// of the tokenizer's files and, with more than one shard, model.safetensors.index.json.
  std::vector<std::pair<std::string, std::string>> small_files;
  std::vector<CopiedFile> tokenizer_files;
  std::vector<std::string> warnings;  // one sentence each: what could not be carried over exactly
  ParameterCount count;               // of what is written
};

/// Plans the export of `checkpoint`. mismatch when tensors are
/// missing, left over or of another shape than the family's (all of them are named, with near
/// names), when no family or more than one fits; unsupported when an argument changes what the
/// model computes and Hugging Face cannot express it; invalid for bad options; not_found for a
/// tokenizer folder that is not there.
Export plan_export(const Checkpoint& checkpoint, const ExportOptions& options);

}  // namespace ferry
