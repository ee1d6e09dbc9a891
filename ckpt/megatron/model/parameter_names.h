// Finds the row of the block tables (blocks.h) that a tensor's name in a checkpoint means.
//
// Names are those of torch_dist checkpoints: "decoder.layers.<suffix>" where layers are stacked,
// "decoder.layers.<number>.<suffix>" where each has a tensor, "mtp.layers.<number>." likewise;
// "mlp.experts.experts.[<number>.]linear_fc1.weight" of routed experts. A parameter may be stored
// in pieces, of which each has a name of its own (ParameterRow::stored_pieces()).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/megatron/model/attention_kinds.h"
#include "ckpt/megatron/model/blocks.h"

namespace ferry {

struct NamedParameter {
  const ParameterRow* row = nullptr;
  const Block* block = nullptr;  // null outside of layers
  int order = 0;                 // among the parameters of its layer, as modules register them
  int separate_order = 0;        // the same where norms are modules of their own
  int piece = -1;                // number of the piece that the name is of; -1: the whole
  int64_t expert = -1;  // the number in the name; -1: not a routed expert, or an axis of the tensor
};

/// `suffix` follows the layer's name ("mlp.linear_fc1.weight"), with or without a kind of
/// attention. Nothing when it is not known.
std::optional<NamedParameter> layer_parameter(std::string_view suffix);

/// A parameter around the inner layer of an MTP layer ("eh_proj.weight").
std::optional<NamedParameter> mtp_parameter(std::string_view suffix);

/// A whole name, with or without the number of the layer.
std::optional<NamedParameter> find_parameter(std::string_view name);

/// Whether a tensor is not a parameter, and not trained.
bool is_buffer(std::string_view name);
/// Whether it is one that stays in fp32, whatever the model's dtype.
bool is_fp32_buffer(std::string_view name);

/// What the names of routed experts' parameters begin with, after the layer's number.
inline constexpr std::string_view kRoutedExperts = "mlp.experts.experts.";

/// What follows "transformer_layer." or "mtp_model_layer.", and in hybrid models
/// "layers.<number>.", if `suffix` starts so; else nothing. `layer`, if given: that number, or 0.
std::optional<std::string_view> inside_mtp(std::string_view suffix, int64_t* layer = nullptr);

/// `name` with its modules called as above where the checkpoint's program called them otherwise:
/// Transformer Engine's operation fuser, which numbers its operations, and older releases. Names
/// of other modules than the decoder and MTP layers stay.
std::string usual_spelling(std::string name);

/// `name`, by which `parameter` was found, with a norm inside a linear module under the name of the
/// module that it otherwise is; other names stay.
std::string separate_norm_name(std::string_view name, const NamedParameter& parameter);

/// The number that `text` starts with, before a dot or its end, and the rest after the dot.
std::optional<int64_t> leading_number(std::string_view text, std::string_view* rest);

// From the name of one layer's, one expert's tensor to that of the tensor that holds them all.

/// "decoder.layers.7.mlp.experts.experts.3.linear_fc1.weight" as the tensor that holds all experts
/// and, where layers are stacked, all layers.
struct GlobalName {
  std::string name;
  bool layer_axis = false, expert_axis = false;
  int64_t layer = -1;  // of the decoder; -1: not of a layer
  int64_t expert = -1;
  int64_t place = -1;  // on the layer axis, where there is one
  int64_t stack = 0;   // that axis's extent
};

/// `layers`: of the decoder. `kinds`: of its attention, which have stacks of their own.
GlobalName global_name(std::string_view local, bool stacked, int64_t layers = 0,
                       const AttentionKinds& kinds = {});

/// Whether every layer of the decoder has parameters of the same names; where not, they are no one
/// tensor. `names` number layers and experts.
bool layers_are_alike(const std::vector<std::string>& names);

}  // namespace ferry
