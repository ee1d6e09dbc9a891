// What the tables of blocks (blocks.cpp) say of a model: how many rows or columns a parameter has,
// and whether a layer has it.
#pragma once

#include <cstdint>

#include "ckpt/base/checked.h"
#include "ckpt/megatron/model/architecture.h"

namespace ferry::block {

using A = Architecture;

inline int64_t times(int64_t x, int64_t y) { return checked_multiply(x, y, "size of a layer"); }
inline int64_t plus(int64_t x, int64_t y) { return checked_add(x, y, "size of a layer"); }

// Rows of a projection that holds gate and up, where the MLP is gated.
inline int64_t both_halves(const A& a, int64_t half) { return times(a.gated() ? 2 : 1, half); }

inline int64_t one(const A&) { return 1; }
inline int64_t hidden(const A& a) { return a.hidden; }
inline int64_t twice_hidden(const A& a) { return times(2, a.hidden); }
inline int64_t padded_vocab(const A& a) { return a.padded_vocab; }
inline int64_t positions(const A& a) { return a.positions; }
inline int64_t head_dim(const A& a) { return a.head_dim; }
inline int64_t qkv(const A& a) {
  const int64_t heads = times(a.output_gate ? 2 : 1, a.heads);
  return times(plus(heads, times(2, a.groups)), a.head_dim);
}
inline int64_t query_norm(const A& a) {
  return a.norms_all_heads ? times(a.heads, a.head_dim) : a.head_dim;
}
inline int64_t key_norm(const A& a) {
  return a.norms_all_heads ? times(a.groups, a.head_dim) : a.head_dim;
}
inline int64_t heads(const A& a) { return a.heads; }
inline int64_t all_heads(const A& a) { return times(a.heads, a.mla ? a.v_dim : a.head_dim); }
inline int64_t q_lora(const A& a) { return a.q_lora_rank; }
inline int64_t q_up(const A& a) { return times(a.heads, plus(a.qk_nope_dim, a.qk_rope_dim)); }
inline int64_t kv_lora(const A& a) { return a.kv_lora_rank; }
inline int64_t kv_down(const A& a) { return plus(a.kv_lora_rank, a.qk_rope_dim); }
inline int64_t kv_up(const A& a) { return times(a.heads, plus(a.qk_nope_dim, a.v_dim)); }
inline int64_t linear_keys(const A& a) { return times(a.linear_key_heads, a.linear_key_dim); }
inline int64_t linear_values(const A& a) { return times(a.linear_value_heads, a.linear_value_dim); }
inline int64_t linear_value_heads(const A& a) { return a.linear_value_heads; }
inline int64_t linear_value_dim(const A& a) { return a.linear_value_dim; }
inline int64_t linear_conv(const A& a) { return a.linear_conv; }
inline int64_t linear_qkv(const A& a) { return plus(times(2, linear_keys(a)), linear_values(a)); }
inline int64_t linear_input(const A& a) {
  return plus(plus(linear_qkv(a), linear_values(a)), times(2, a.linear_value_heads));
}
inline int64_t index_queries(const A& a) { return times(a.index_heads, a.index_dim); }
inline int64_t index_inputs(const A& a) { return a.q_lora_rank > 0 ? a.q_lora_rank : a.hidden; }
inline int64_t index_heads(const A& a) { return a.index_heads; }
inline int64_t index_dim(const A& a) { return a.index_dim; }
inline int64_t mamba_heads(const A& a) { return a.mamba_heads; }
inline int64_t mamba_inner(const A& a) { return times(a.mamba_heads, a.mamba_head_dim); }
inline int64_t mamba_states(const A& a) { return times(a.mamba_groups, a.mamba_state); }
inline int64_t mamba_convolved(const A& a) {
  return plus(mamba_inner(a), times(2, mamba_states(a)));
}
inline int64_t mamba_input(const A& a) {
  return plus(plus(mamba_inner(a), mamba_convolved(a)), a.mamba_heads);
}
inline int64_t mamba_conv(const A&) { return 4; }  // Megatron-LM has no argument for it
inline int64_t ffn(const A& a) { return a.ffn; }
inline int64_t fc1(const A& a) { return both_halves(a, a.ffn); }
inline int64_t experts(const A& a) { return a.experts; }
inline int64_t expert_ffn(const A& a) { return a.expert_ffn; }
inline int64_t expert_width(const A& a) { return a.expert_width > 0 ? a.expert_width : a.hidden; }
inline int64_t expert_fc1(const A& a) { return both_halves(a, a.expert_ffn); }
inline int64_t shared_ffn(const A& a) { return a.shared_ffn; }
inline int64_t shared_fc1(const A& a) { return both_halves(a, a.shared_ffn); }
inline int64_t layer_embedding(const A& a) { return a.layer_embedding; }
inline int64_t layer_embedding_vocab(const A& a) { return a.layer_embedding_vocab; }
inline int64_t all_layer_embeddings(const A& a) { return times(a.layers, a.layer_embedding); }

inline bool is_linear(const A& a, int64_t layer) { return a.is_linear(layer); }
inline bool is_softmax(const A& a, int64_t layer) {
  const LayerKind kind = a.kind(layer);
  return (kind == LayerKind::transformer || kind == LayerKind::attention) && !a.is_linear(layer);
}
inline bool is_mla(const A& a, int64_t layer) { return a.mla && is_softmax(a, layer); }
inline bool is_plain(const A& a, int64_t layer) { return !a.mla && is_softmax(a, layer); }
inline bool is_dense(const A& a, int64_t layer) {
  const LayerKind kind = a.kind(layer);
  return (kind == LayerKind::transformer || kind == LayerKind::mlp) && !a.is_moe(layer);
}
inline bool is_moe(const A& a, int64_t layer) { return a.is_moe(layer); }
inline bool is_mamba(const A& a, int64_t layer) { return a.kind(layer) == LayerKind::mamba; }
inline bool has_latent_experts(const A& a, int64_t) { return a.expert_width > 0; }
inline bool has_layer_norm(const A& a, int64_t) { return a.norm == Norm::layer; }
inline bool has_input_norm(const A& a, int64_t) { return a.input_norms && !a.norm_modules; }
inline bool has_input_layer_norm(const A& a, int64_t layer) {
  return has_input_norm(a, layer) && a.norm == Norm::layer;
}
inline bool has_output_norm(const A& a, int64_t) { return a.output_norms && !a.norm_modules; }
inline bool has_output_layer_norm(const A& a, int64_t layer) {
  return has_output_norm(a, layer) && a.norm == Norm::layer;
}
inline bool has_output_norm_module(const A& a, int64_t) { return a.output_norms && a.norm_modules; }
inline bool has_norm_module(const A& a, int64_t layer) {
  return is_mla(a, layer) || (a.input_norms && a.norm_modules);
}
inline bool has_norm_module_of_mlp(const A& a, int64_t layer) {
  return a.is_moe(layer) || (a.input_norms && a.norm_modules);
}
inline bool scales_layers(const A& a, int64_t) { return a.scales_layers; }
inline bool has_layer_embeddings(const A& a, int64_t) { return a.layer_embedding > 0; }
inline bool has_linear_bias(const A& a, int64_t) { return a.linear_bias; }
inline bool has_qkv_bias(const A& a, int64_t) { return a.qkv_bias || a.linear_bias; }
inline bool has_sinks(const A& a, int64_t) { return a.sinks; }
inline bool has_qk_norm(const A& a, int64_t) { return a.qk_norm; }
inline bool has_qk_layer_norm(const A& a, int64_t) { return a.qk_norm && a.norm == Norm::layer; }
inline bool compresses_queries(const A& a, int64_t) { return a.q_lora_rank > 0; }
inline bool does_not_compress_queries(const A& a, int64_t) { return a.q_lora_rank == 0; }
inline bool has_q_norm(const A& a, int64_t) { return a.qk_norm && a.q_lora_rank > 0; }
inline bool has_q_layer_norm(const A& a, int64_t layer) {
  return has_q_norm(a, layer) && a.norm == Norm::layer;
}
// MTP layers, which count after the last one, have an indexer each.
inline bool has_indexer(const A& a, int64_t layer) {
  return layer < a.layers ? a.has_indexer(layer) : a.index_heads > 0;
}
inline bool has_xielu(const A& a, int64_t) { return a.activation == Activation::xielu; }
inline bool norms_parts(const A& a, int64_t layer) { return a.is_moe(layer) && a.norms_parts; }
inline bool has_expert_bias(const A& a, int64_t) { return a.expert_bias; }
inline bool has_shared_expert(const A& a, int64_t layer) {
  return a.is_moe(layer) && a.shared_ffn > 0;
}
inline bool has_shared_gate(const A& a, int64_t) { return a.shared_gate; }
inline bool learns_positions(const A& a, int64_t) { return a.position_kind == Positions::learned; }
inline bool is_untied(const A& a, int64_t) { return !a.tied; }

}  // namespace ferry::block
