// Models of the Hugging Face kind in checkpoints of other programs: a state dict whose tensors have
// transformers' names, perhaps under a prefix and next to an optimizer (torch.save, PyTorch DCP,
// ranks of FSDP, DeepSpeed).
//
// Such a checkpoint says nothing of the model but names and shapes: a config.json next to it, or
// given, says the rest. Where its model_type is a family's, prefix and completeness follow from
// the family's names.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/checkpoint.h"
#include "convert/check/model_check.h"
#include "convert/export.h"

namespace ferry {

struct StateDictOptions {
  /// Whether a tensor is the model's, asked by its stored name; null: all but the optimizer's are.
  std::function<bool(std::string_view)> is_chosen;
  /// A tensor's new name, or the old one; null: names stay.
  std::function<std::string(std::string_view)> rename;
  /// Where config.json is, and what goes with it; empty: it is searched for next to the checkpoint,
  /// then in `fill_from`.
  std::string config_folder;
  /// The Hugging Face model that gives the tensors that are missing, which are not refused then.
  std::string fill_from;
  std::optional<std::string> family;         // refuse another than this
  std::vector<std::string> ignored_members;  // of config.json: left out, with a warning
  bool optimizer = false;                    // the state of the model's parameters too
  bool drop_unknown = false;   // leave out what the family has not; else it is refused
  bool language_part = false;  // of a model of several parts, its language model alone
  bool names_only = false;     // name what is there; whether it is the model is not checked
  bool base_only = false;      // leave out the adapter that the model holds; else it is refused
};

/// True where the tensors have another program's names: what is neither Megatron-LM's nor a Hugging
/// Face folder.
bool is_state_dict(const Checkpoint& checkpoint);

/// True of a checkpoint of Megatron-LM's format without its arguments, as verl saves them: a
/// config.json describes the model.
bool lacks_arguments(const Checkpoint& checkpoint);

/// True of a Hugging Face folder whose config.json is of no family but has a language model inside
/// that is, or is to be read as `family`.
bool has_language_part(const Checkpoint& checkpoint, const std::optional<std::string>& family);

/// The folder of the config.json that goes with a checkpoint: `requested`, or the checkpoint's own,
/// its part `huggingface/`, the folder around it, or else `fallback`. not_found when there is none.
std::string find_config_folder(const Checkpoint& checkpoint, const std::string& requested,
                               const std::string& fallback = {});

/// A state dict seen as a Hugging Face model.
struct StateDict {
  Checkpoint model;             // of format hugging_face; entries have transformers' names, also
                                // after "optimizer.state.<kind>."
  std::string config_folder;    // of its config.json
  bool top_files_only = false;  // that folder holds more than the model
  std::string prefix;           // that was taken off the names
  std::string family;           // whose names and shapes they are; empty: not known, not checked
  std::vector<std::string> warnings;
  /// For a model in torchtitan's own names: what each entry is made of, in `source`; the entries
  /// have no chunks then. Empty: the entries are where their chunks say.
  std::vector<Recipe> recipes;
  SharedCatalog source;
};

/// mismatch, naming them, when tensors are missing, left over or of other shapes than config.json
/// says; invalid when there are models under several prefixes, or nothing is left; not_found
/// without config.json; unsupported for parameters that a program flattened, and for a model with
/// an adapter. `checkpoint` is a state dict or a Hugging Face folder.
StateDict read_state_dict(const Checkpoint& checkpoint, const StateDictOptions& options);

/// What names and shapes of a DCP's, of FSDP's or of DeepSpeed's tensors say, by the config.json of
/// a known family that goes with them. A problem: tensors of other shapes, as are those of which a
/// rank's part is missing. A warning: tensors that are missing or left over, as a program may save
/// only what it trained, or several models. Reads no tensor.
ModelCheck check_state_dict(const Checkpoint& checkpoint);

/// plan_rewrite() of it.
Export plan_state_dict(const StateDict& state_dict, const ExportOptions& options);

}  // namespace ferry
