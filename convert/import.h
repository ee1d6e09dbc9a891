// Hugging Face folders as the state of a Megatron-LM run: what every writer of its formats takes.
//
// The same tables that export reads (convert/families/), read in reverse; the arguments come from
// config.json through the Architecture. Nothing is read but headers: the recipes say how each
// tensor is made.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/base/dtype.h"
#include "ckpt/checkpoint.h"
#include "ckpt/megatron/model/target_options.h"
#include "ckpt/megatron/state/run_state.h"
#include "convert/export.h"

namespace ferry {

struct ReadConfig;  // convert/config_json.h

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

struct Import {
  std::string family;
  RunState state;
  std::vector<CopiedFile> tokenizer_files;  // and all others that go with the model
  bool has_tokenizer = false;               // a tokenizer's are among them
  /// What the command line of Megatron-LM must say in addition to --use-checkpoint-args, which
  /// takes the other arguments from the checkpoint: "--qk-layernorm".
  std::vector<std::string> flags;
  int64_t parameters = 0;  // elements of all tensors, padding included
};

/// `checkpoint` is of format hugging_face. The iteration is 0, and there is
/// neither optimizer nor random number state: Megatron-LM loads it as a release. With the optimizer
/// (entries "optimizer.state.<exp_avg, exp_avg_sq>.<parameter>") it is the iteration that was
/// saved, with parameter groups and a constant schedule of learning rates.
///
/// not_found without a config.json; unsupported when that says what a Megatron model cannot be;
/// mismatch when the tensors are not the family's; invalid for bad options and for a layout that
/// the model does not divide into.
Import import_model(const Checkpoint& checkpoint, const ImportOptions& options);

/// Where config.json ties the output layer to the embedding and `catalog` (transformers' names)
/// holds both: the embedding, and whether they are the same, element by element. Else nothing.
struct TiedOutputLayer {
  std::string embedding;
  bool is_copy;
};
std::optional<TiedOutputLayer> tied_output_layer(const Catalog& catalog, const ReadConfig& read);

/// The arguments that a checkpoint of Megatron-LM's would have which has none, as verl's: those
/// that make the model of the config.json in `folder`, on the ranks of `layout`. As import_model().
LoadedValue arguments_of_config(const Checkpoint& checkpoint, const std::string& folder,
                                std::vector<std::string>& warnings,
                                const ParallelTarget& layout = {});

inline RunState import_state(const Checkpoint& checkpoint, const ImportOptions& options) {
  return import_model(checkpoint, options).state;
}

}  // namespace ferry
