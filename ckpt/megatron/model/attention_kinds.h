// torch_dist names of models whose attention differs in size between layers with a window and
// layers without: each kind is stacked by itself, under a name of its own.
//
//   decoder.layers.<n>.self_attention.<...>   layer n, as modules and the blocks' tables name it
//   decoder.layers.self_attention_sliding.<...>, decoder.layers.self_attention_global.<...>
//                                             stacks of the layers of a kind, in their order
//   decoder.layers.<n>.self_attention_global.<...>   where layers are numbered
//
// Source: Megatron Bridge models/gemma/modeling_gemma4.py (sharded_state_dict of both attentions).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/format/pickle/values/value.h"
#include "ckpt/megatron/model/architecture.h"

namespace ferry {

struct AttentionKinds {
  std::vector<bool> windowed;  // by layer of the decoder; empty: all attention has one name

  explicit operator bool() const { return !windowed.empty(); }

  /// The layers that the stack of this name holds, of `layers` in all.
  std::vector<int64_t> layers_of(std::string_view name, int64_t layers) const;

  /// `suffix`, what follows the layer's number, by the kind of that layer.
  std::string with_kind(std::string_view suffix, int64_t layer) const;
};

AttentionKinds attention_kinds(const Architecture& architecture);

/// Which layers have a window, as the arguments say: window_attn_skip_freq, every n-th or a list,
/// or interleaved_attn_pattern, of whose sum's layers the last has none. Empty: no layer, or, where
/// there is a window, all.
std::vector<bool> windowed_layers(const Value& args, int64_t layers);

/// A name, or what follows the layer's number, without a kind; others stay.
std::string without_kind(std::string_view name);

}  // namespace ferry
