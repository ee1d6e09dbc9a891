// The kinds of rows that config.json files of the families are made of.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "convert/config/config_row.h"

namespace ferry::codec {

/// A member that is one of the architecture's.
ConfigRow plain(std::string_view key, int64_t Architecture::*member);
ConfigRow plain(std::string_view key, double Architecture::*member);
ConfigRow plain(std::string_view key, bool Architecture::*member);

/// The number of experts, of a class that always has some, and the width of a shared expert that
/// all its mixtures have.
ConfigRow experts(std::string_view key);
ConfigRow shared_expert(std::string_view key);

/// A row whose members may be null, which the class takes as if they were missing.
ConfigRow or_null(ConfigRow row);

/// A row of what only some models of the class have; others have no such member.
ConfigRow only_where(bool (*has)(const Architecture&), ConfigRow row);

/// A size where 0 is written as null.
ConfigRow null_at_zero(std::string_view key, int64_t Architecture::*member);
/// A factor; 0, which stands for none, is written as 1.
ConfigRow one_at_zero(std::string_view key, double Architecture::*member);

/// A member that the class must have, with the only value that Megatron computes.
ConfigRow constant(std::string_view key, nlohmann::json value);

/// A member that changes nothing in a model that Megatron can be, written as the class has it.
ConfigRow indifferent(std::string_view key, nlohmann::json value);

/// As constant(), in models with experts alone.
ConfigRow of_mixtures(std::string_view key, nlohmann::json value);

/// What the class always is, whatever its config.json says.
template <typename Block, typename T>
ConfigRow implied(T Block::*member, T value) {
  return {.read = [=](nlohmann::json&, Architecture& a) { a.*member = value; }};
}

/// The activation's name. `supported`: those that the class's MLP makes one of; a class whose MLP
/// is gated makes a gated one of any name.
ConfigRow activation(std::vector<Activation> supported = {Activation::swiglu},
                     std::string_view key = "hidden_act");

/// query_pre_attn_scalar, after head_dim: scores are divided by its root.
ConfigRow attention_scalar();

/// gpt-oss's clamped MLP: swiglu_limit, and members that must be as they are.
ConfigRow clamped_glu();

/// rope_theta, rope_scaling and rope_parameters.
ConfigRow rope();
/// The same by kind of layer: those with a window have a base of their own, `windowed_theta` where
/// the file is silent, and are not scaled.
ConfigRow rope_by_kind(double windowed_theta);
/// The part of each head that is rotated: partial_rotary_factor, also inside rope_parameters.
ConfigRow partial_rotary();
/// A member of rope_parameters that must be 0 or missing, and is written as 0 because the class
/// wants one. `meaning`: what others would do.
ConfigRow zero_of_rope(std::string_view key, std::string_view meaning);
/// The class scales positions in no way that Megatron has.
ConfigRow unscaled_positions();
/// no_rope_layers: 1 for each layer with rotary positions, 0 for the others; where it is missing,
/// every no_rope_layer_interval-th has none.
ConfigRow no_rope_layers();

/// layer_types: which layers have linear attention; where it is missing, all but every
/// full_attention_interval-th.
ConfigRow linear_layers();

/// Which kind each layer has, as layers_block_type, hybrid_override_pattern, and the same of MTP
/// layers, of which num_nextn_predict_layers says how many there are.
ConfigRow hybrid_layers();

/// head_dim, written only where it is not hidden / heads; read as that where it is missing.
ConfigRow unusual_head_dim();

/// Whether queries, keys and values have biases, alone or with all other linear layers. Comes after
/// what says that the others do.
ConfigRow qkv_bias(std::string_view key);

/// num_key_value_heads of latent attention, which has none: the number of heads.
ConfigRow heads_for_groups();

/// One window for all layers, or null.
ConfigRow window();
/// use_sliding_window, sliding_window, and max_window_layers or layer_types: which layers have it.
ConfigRow layer_windows();
/// sliding_window and layer_types: which layers have it; where the file is silent all but every
/// n-th, or as many as its member `interval` says.
ConfigRow window_by_kind(int64_t full_every, std::string_view interval = {});
/// use_sliding_window and sliding_window, for all layers or none.
ConfigRow optional_window();

/// decoder_sparse_step and mlp_only_layers: which layers have experts.
ConfigRow sparse_steps();
/// first_k_dense_replace: as many layers without experts come first. `experts_key` says how many
/// there are, of which a model of dense layers alone has 0.
ConfigRow first_dense_layers(std::string_view experts_key);

/// mlp_layer_types ("dense" or "sparse" by layer), before first_k_dense_replace, which is
/// `otherwise` where the file has neither.
ConfigRow mixture_kinds(int64_t otherwise);

/// Which layers have an indexer: indexer_types, index_topk_pattern, or index_topk_freq and
/// index_skip_topk_offset.
ConfigRow indexer_layers();

/// n_shared_experts: the shared expert is as wide as so many routed ones.
ConfigRow shared_expert_count(std::string_view key = "n_shared_experts");
/// A sigmoid router that renormalises always, which with one expert for a token Megatron's does
/// not.
ConfigRow several_experts();
/// n_group and topk_group: of how many groups of experts a token may use how many.
ConfigRow router_groups();
/// topk_method, after those: "greedy" is without groups, "group_limited_greedy" with them.
ConfigRow router_method();
/// Whether the scores of the chosen experts are renormalised, where they are a softmax's.
ConfigRow renormalises(std::string_view key);
/// A sigmoid router renormalises the scores of the chosen experts, unless there is one.
ConfigRow renormalises_chosen(std::string_view key);

/// A bias of the router's scores, which the class always has: config.json says nothing of it. A
/// model without one gets zeros.
ConfigRow router_bias();
/// The number of MTP layers, which transformers keeps when it leaves their tensors out.
ConfigRow mtp_layers(std::string_view key);

/// The same of a class whose tensors have room for one MTP layer. Empty: config.json does not say.
ConfigRow one_mtp_layer(std::string_view key = {});

/// hidden_size must be a multiple of the number of heads, whatever head_dim is.
ConfigRow even_heads();

}  // namespace ferry::codec
