// What is known of one parameter of a transformer layer from its name alone: where it stands among
// the layer's parameters, and how tensor parallelism splits it.
//
// The order is that in which Megatron-LM's modules register parameters, which is the order of the
// flat gradient buffers (reversed there). Modules register their own parameters first, then their
// submodules in the order of construction. Shown by checkpoints for plain attention, dense and
// mixture-of-experts layers; derived from the source alone for latent attention, shared experts'
// gate, latent projections, learned softmax offsets and MTP layers.
//
// Source: megatron/core/transformer/{transformer_layer,attention,multi_latent_attention,mlp}.py,
// moe/{moe_layer,router,shared_experts,experts}.py, extensions/transformer_engine.py.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ferry {

enum class Split : uint8_t {
  replicated,
  rows,         // axis 0 over the tensor ranks
  gated_rows,   // axis 0 holds gate, then up; each over the tensor ranks (rows without a gate)
  columns,      // axis 1
  latent_rows,  // MLA down-projections: rows, or replicated, as the module was chosen
};

enum class Half : uint8_t { none, gate, up };  // of a gated projection stored under two keys

struct ParameterRule {
  int order = 0;
  Split split = Split::replicated;
  Half half = Half::none;
  bool trainable = true;        // false: a buffer, without optimizer state
  bool attention_norm = false;  // the norm that is inside linear_qkv or before the attention
};

/// `suffix` is the name after "decoder.layers.", layer number and dot ("mlp.linear_fc1.weight"),
/// not of an expert. Nothing when the name is not known.
std::optional<ParameterRule> layer_rule(std::string_view suffix);

/// Order of the routed experts' parameters in their layer.
int experts_order();

/// Order of `attention_norm` parameters where the norm is a module of its own before the attention.
int leading_norm_order(std::string_view suffix);

/// What the names of routed experts' parameters begin with, after the layer's number.
inline constexpr std::string_view kRoutedExperts = "mlp.experts.experts.";

/// A routed expert's parameter: "mlp.experts.experts.[<e>.]linear_fc<n>.<attribute>".
struct ExpertRule {
  int projection = 0;  // 0: linear_fc1, 1: linear_fc2
  bool bias = false;
  int64_t expert = -1;  // where the name says it; -1: an axis of the tensor
  Half half = Half::none;
  Split split() const;
};
std::optional<ExpertRule> expert_rule(std::string_view suffix);

/// What names of latent attention's norms begin with where they are modules of their own, and where
/// they are a part of the projection behind them.
struct LatentNorm {
  std::string_view apart, in_linear;
};
inline constexpr LatentNorm kLatentNorms[] = {
    {"self_attention.q_layernorm.", "self_attention.linear_q_up_proj.layer_norm_"},
    {"self_attention.kv_layernorm.", "self_attention.linear_kv_up_proj.layer_norm_"}};

/// A parameter around the inner layer of a multi-token-prediction layer ("eh_proj.weight").
std::optional<ParameterRule> mtp_rule(std::string_view suffix);

/// Without "transformer_layer." or "mtp_model_layer.", if `suffix` starts so; else nothing.
std::optional<std::string_view> inside_mtp(std::string_view suffix);

/// Whether a layer's tensor is no parameter: a run does not train it, and keeps it in fp32. `name`
/// is whole, with or without layer number.
bool is_buffer(std::string_view name);

struct TensorSplit {
  Split split = Split::replicated;
  bool routed_expert = false;  // split over the expert-tensor ranks
};

/// How a tensor of the model is split over ranks; `name` is whole, with or without layer number.
/// Nothing when the name is not known.
std::optional<TensorSplit> tensor_split(std::string_view name);

/// The number that `text` starts with, before a dot or its end, and the rest after the dot.
std::optional<int64_t> leading_number(std::string_view text, std::string_view* rest);

}  // namespace ferry
