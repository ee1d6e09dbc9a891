#include "ckpt/megatron/model/blocks.h"

#include "ckpt/base/checked.h"

namespace ferry {
namespace {

using A = Architecture;
using enum Split;
using enum FirstValues;

int64_t times(int64_t x, int64_t y) { return checked_multiply(x, y, "size of a layer"); }
int64_t plus(int64_t x, int64_t y) { return checked_add(x, y, "size of a layer"); }

// Rows of a projection that holds gate and up, where the MLP is gated.
int64_t both_halves(const A& a, int64_t half) { return times(a.gated() ? 2 : 1, half); }

int64_t one(const A&) { return 1; }
int64_t hidden(const A& a) { return a.hidden; }
int64_t twice_hidden(const A& a) { return times(2, a.hidden); }
int64_t padded_vocab(const A& a) { return a.padded_vocab; }
int64_t positions(const A& a) { return a.positions; }
int64_t head_dim(const A& a) { return a.head_dim; }
int64_t qkv(const A& a) {
  const int64_t heads = times(a.output_gate ? 2 : 1, a.heads);
  return times(plus(heads, times(2, a.groups)), a.head_dim);
}
int64_t query_norm(const A& a) {
  return a.norms_all_heads ? times(a.heads, a.head_dim) : a.head_dim;
}
int64_t key_norm(const A& a) {
  return a.norms_all_heads ? times(a.groups, a.head_dim) : a.head_dim;
}
int64_t heads(const A& a) { return a.heads; }
int64_t all_heads(const A& a) { return times(a.heads, a.mla ? a.v_dim : a.head_dim); }
int64_t q_lora(const A& a) { return a.q_lora_rank; }
int64_t q_up(const A& a) { return times(a.heads, plus(a.qk_nope_dim, a.qk_rope_dim)); }
int64_t kv_lora(const A& a) { return a.kv_lora_rank; }
int64_t kv_down(const A& a) { return plus(a.kv_lora_rank, a.qk_rope_dim); }
int64_t kv_up(const A& a) { return times(a.heads, plus(a.qk_nope_dim, a.v_dim)); }
int64_t linear_keys(const A& a) { return times(a.linear_key_heads, a.linear_key_dim); }
int64_t linear_values(const A& a) { return times(a.linear_value_heads, a.linear_value_dim); }
int64_t linear_value_heads(const A& a) { return a.linear_value_heads; }
int64_t linear_value_dim(const A& a) { return a.linear_value_dim; }
int64_t linear_conv(const A& a) { return a.linear_conv; }
int64_t linear_qkv(const A& a) { return plus(times(2, linear_keys(a)), linear_values(a)); }
int64_t linear_input(const A& a) {
  return plus(plus(linear_qkv(a), linear_values(a)), times(2, a.linear_value_heads));
}
int64_t index_queries(const A& a) { return times(a.index_heads, a.index_dim); }
int64_t index_inputs(const A& a) { return a.q_lora_rank > 0 ? a.q_lora_rank : a.hidden; }
int64_t index_heads(const A& a) { return a.index_heads; }
int64_t index_dim(const A& a) { return a.index_dim; }
int64_t mamba_heads(const A& a) { return a.mamba_heads; }
int64_t mamba_inner(const A& a) { return times(a.mamba_heads, a.mamba_head_dim); }
int64_t mamba_states(const A& a) { return times(a.mamba_groups, a.mamba_state); }
int64_t mamba_convolved(const A& a) { return plus(mamba_inner(a), times(2, mamba_states(a))); }
int64_t mamba_input(const A& a) {
  return plus(plus(mamba_inner(a), mamba_convolved(a)), a.mamba_heads);
}
int64_t mamba_conv(const A&) { return 4; }  // Megatron-LM has no argument for it
int64_t ffn(const A& a) { return a.ffn; }
int64_t fc1(const A& a) { return both_halves(a, a.ffn); }
int64_t experts(const A& a) { return a.experts; }
int64_t expert_ffn(const A& a) { return a.expert_ffn; }
int64_t expert_width(const A& a) { return a.expert_width > 0 ? a.expert_width : a.hidden; }
int64_t expert_fc1(const A& a) { return both_halves(a, a.expert_ffn); }
int64_t shared_ffn(const A& a) { return a.shared_ffn; }
int64_t shared_fc1(const A& a) { return both_halves(a, a.shared_ffn); }
int64_t layer_embedding(const A& a) { return a.layer_embedding; }
int64_t layer_embedding_vocab(const A& a) { return a.layer_embedding_vocab; }
int64_t all_layer_embeddings(const A& a) { return times(a.layers, a.layer_embedding); }

bool is_linear(const A& a, int64_t layer) { return a.is_linear(layer); }
bool is_softmax(const A& a, int64_t layer) {
  const LayerKind kind = a.kind(layer);
  return (kind == LayerKind::transformer || kind == LayerKind::attention) && !a.is_linear(layer);
}
bool is_mla(const A& a, int64_t layer) { return a.mla && is_softmax(a, layer); }
bool is_plain(const A& a, int64_t layer) { return !a.mla && is_softmax(a, layer); }
bool is_dense(const A& a, int64_t layer) {
  const LayerKind kind = a.kind(layer);
  return (kind == LayerKind::transformer || kind == LayerKind::mlp) && !a.is_moe(layer);
}
bool is_moe(const A& a, int64_t layer) { return a.is_moe(layer); }
bool is_mamba(const A& a, int64_t layer) { return a.kind(layer) == LayerKind::mamba; }
bool has_latent_experts(const A& a, int64_t) { return a.expert_width > 0; }
bool has_layer_norm(const A& a, int64_t) { return a.norm == Norm::layer; }
bool has_input_norm(const A& a, int64_t) { return a.input_norms && !a.norm_modules; }
bool has_input_layer_norm(const A& a, int64_t layer) {
  return has_input_norm(a, layer) && a.norm == Norm::layer;
}
bool has_output_norm(const A& a, int64_t) { return a.output_norms && !a.norm_modules; }
bool has_output_layer_norm(const A& a, int64_t layer) {
  return has_output_norm(a, layer) && a.norm == Norm::layer;
}
bool has_output_norm_module(const A& a, int64_t) { return a.output_norms && a.norm_modules; }
bool has_norm_module(const A& a, int64_t layer) {
  return is_mla(a, layer) || (a.input_norms && a.norm_modules);
}
bool has_norm_module_of_mlp(const A& a, int64_t layer) {
  return a.is_moe(layer) || (a.input_norms && a.norm_modules);
}
bool scales_layers(const A& a, int64_t) { return a.scales_layers; }
bool has_layer_embeddings(const A& a, int64_t) { return a.layer_embedding > 0; }
bool has_linear_bias(const A& a, int64_t) { return a.linear_bias; }
bool has_qkv_bias(const A& a, int64_t) { return a.qkv_bias || a.linear_bias; }
bool has_sinks(const A& a, int64_t) { return a.sinks; }
bool has_qk_norm(const A& a, int64_t) { return a.qk_norm; }
bool has_qk_layer_norm(const A& a, int64_t) { return a.qk_norm && a.norm == Norm::layer; }
bool compresses_queries(const A& a, int64_t) { return a.q_lora_rank > 0; }
bool does_not_compress_queries(const A& a, int64_t) { return a.q_lora_rank == 0; }
bool has_q_norm(const A& a, int64_t) { return a.qk_norm && a.q_lora_rank > 0; }
bool has_q_layer_norm(const A& a, int64_t layer) {
  return has_q_norm(a, layer) && a.norm == Norm::layer;
}
// MTP layers, which count after the last one, have an indexer each.
bool has_indexer(const A& a, int64_t layer) {
  return layer < a.layers ? a.has_indexer(layer) : a.index_heads > 0;
}
bool has_xielu(const A& a, int64_t) { return a.activation == Activation::xielu; }
bool has_expert_bias(const A& a, int64_t) { return a.expert_bias; }
bool has_shared_expert(const A& a, int64_t layer) { return a.is_moe(layer) && a.shared_ffn > 0; }
bool has_shared_gate(const A& a, int64_t) { return a.shared_gate; }
bool learns_positions(const A& a, int64_t) { return a.position_kind == Positions::learned; }
bool is_untied(const A& a, int64_t) { return !a.tied; }

constexpr ParameterRow kEmbedding[] = {
    {"embedding.word_embeddings.weight", rows, normal, {padded_vocab, hidden}},
    {"embedding.position_embeddings.weight",
     replicated,
     normal,
     {positions, hidden},
     learns_positions},
    {"embedding.tokentype_embeddings.weight"},
};

// Where no linear module takes the norm in.
constexpr ParameterRow kInputNorm[] = {
    {"input_layernorm.weight", replicated, ones, {hidden}},
    {"input_layernorm.bias", replicated, zeros, {hidden}, has_layer_norm},
};

// Every tensor rank has all of it.
constexpr ParameterRow kIndexer[] = {
    {"self_attention.core_attention.indexer.linear_wq_b.weight",
     replicated,
     normal,
     {index_queries, index_inputs}},
    {"self_attention.core_attention.indexer.linear_wk.weight",
     replicated,
     normal,
     {index_dim, hidden}},
    {"self_attention.core_attention.indexer.k_norm.weight", replicated, ones, {index_dim}},
    {"self_attention.core_attention.indexer.k_norm.bias", replicated, zeros, {index_dim}},
    {"self_attention.core_attention.indexer.linear_weights_proj.weight",
     replicated,
     normal,
     {index_heads, hidden}},
};

constexpr ParameterRow kAttentionOutput[] = {
    {"self_attention.core_attention.softmax_offset", rows, normal, {heads}, has_sinks},
    {"self_attention.linear_proj.weight", columns, scaled_normal, {hidden, all_heads}},
    {"self_attention.linear_proj.bias", replicated, zeros, {hidden}, has_linear_bias},
    {"self_attention.linear_proj.post_layernorm.weight",
     replicated,
     ones,
     {hidden},
     has_output_norm},
    {"self_attention.linear_proj.post_layernorm.bias",
     replicated,
     zeros,
     {hidden},
     has_output_layer_norm},
};

constexpr ParameterRow kAttention[] = {
    {.name = "self_attention.linear_qkv.layer_norm_weight",
     .first_values = ones,
     .shape = {hidden},
     .when = has_input_norm,
     .separate_norm = "input_layernorm.weight"},
    {.name = "self_attention.linear_qkv.layer_norm_bias",
     .first_values = zeros,
     .shape = {hidden},
     .when = has_input_layer_norm,
     .separate_norm = "input_layernorm.bias"},
    {"self_attention.linear_qkv.weight", rows, normal, {qkv, hidden}},
    {"self_attention.linear_qkv.bias", rows, zeros, {qkv}, has_qkv_bias},
};

constexpr ParameterRow kLatentAttention[] = {
    {.name = "self_attention.linear_q_proj.layer_norm_weight",
     .first_values = ones,
     .separate_norm = "input_layernorm.weight"},
    {.name = "self_attention.linear_q_proj.layer_norm_bias",
     .first_values = zeros,
     .separate_norm = "input_layernorm.bias"},
    {"self_attention.linear_q_proj.weight",
     rows,
     normal,
     {q_up, hidden},
     does_not_compress_queries},
    {"self_attention.linear_q_proj.bias", rows, zeros},
    {"self_attention.linear_q_down_proj.weight",
     latent_rows,
     normal,
     {q_lora, hidden},
     compresses_queries},
    {"self_attention.linear_q_down_proj.bias", latent_rows, zeros},
    {.name = "self_attention.linear_q_up_proj.layer_norm_weight",
     .first_values = ones,
     .shape = {q_lora},
     .when = has_q_norm,
     .separate_norm = "self_attention.q_layernorm.weight"},
    {.name = "self_attention.linear_q_up_proj.layer_norm_bias",
     .first_values = zeros,
     .shape = {q_lora},
     .when = has_q_layer_norm,
     .separate_norm = "self_attention.q_layernorm.bias"},
    {"self_attention.linear_q_up_proj.weight", rows, normal, {q_up, q_lora}, compresses_queries},
    {"self_attention.linear_q_up_proj.bias", rows, zeros},
    {"self_attention.linear_kv_down_proj.weight", latent_rows, normal, {kv_down, hidden}},
    {"self_attention.linear_kv_down_proj.bias", latent_rows, zeros},
    {.name = "self_attention.linear_kv_up_proj.layer_norm_weight",
     .first_values = ones,
     .shape = {kv_lora},
     .when = has_qk_norm,
     .separate_norm = "self_attention.kv_layernorm.weight"},
    {.name = "self_attention.linear_kv_up_proj.layer_norm_bias",
     .first_values = zeros,
     .shape = {kv_lora},
     .when = has_qk_layer_norm,
     .separate_norm = "self_attention.kv_layernorm.bias"},
    {"self_attention.linear_kv_up_proj.weight", rows, normal, {kv_up, kv_lora}},
    {"self_attention.linear_kv_up_proj.bias", rows, zeros},
};

constexpr ParameterRow kHeadNorms[] = {
    {"self_attention.q_layernorm.weight", head_rows, ones, {query_norm}, has_qk_norm},
    {"self_attention.q_layernorm.bias", replicated, zeros, {head_dim}, has_qk_layer_norm},
    {"self_attention.k_layernorm.weight", head_rows, ones, {key_norm}, has_qk_norm},
    {"self_attention.k_layernorm.bias", replicated, zeros, {head_dim}, has_qk_layer_norm},
};

constexpr RowPiece kDeltaNetInput[] = {
    {".query", linear_keys}, {".key", linear_keys},         {".value", linear_values},
    {".z", linear_values},   {".beta", linear_value_heads}, {".alpha", linear_value_heads}};
constexpr RowPiece kDeltaNetConvolution[] = {
    {".query", linear_keys}, {".key", linear_keys}, {".value", linear_values}};

// In the place of attention: the parameters of the module itself come before its submodules.
constexpr ParameterRow kDeltaNet[] = {
    {"self_attention.dt_bias", rows, not_trained, {linear_value_heads}},
    {"self_attention.A_log", rows, not_trained, {linear_value_heads}},
    {.name = "self_attention.in_proj.layer_norm_weight",
     .first_values = ones,
     .shape = {hidden},
     .separate_norm = "input_layernorm.weight"},
    {.name = "self_attention.in_proj.weight",
     .split = rows,
     .shape = {linear_input, hidden},
     .pieces = kDeltaNetInput},
    {.name = "self_attention.conv1d.weight",
     .split = rows,
     .first_values = not_trained,
     .shape = {linear_qkv, one, linear_conv},
     .pieces = kDeltaNetConvolution},
    {"self_attention.out_norm.weight", replicated, ones, {linear_value_dim}},
    {"self_attention.out_proj.weight", columns, scaled_normal, {hidden, linear_values}},
};

constexpr RowPiece kMambaInput[] = {{".z", mamba_inner},
                                    {".x", mamba_inner},
                                    {".B", mamba_states},
                                    {".C", mamba_states},
                                    {".dt", mamba_heads}};
constexpr RowPiece kMambaConvolution[] = {
    {".x", mamba_inner}, {".B", mamba_states}, {".C", mamba_states}};

// In the order of today's releases. Before, the convolution was a submodule, after in_proj.
constexpr ParameterRow kMamba[] = {
    {.name = "mixer.conv1d.weight",
     .split = rows,
     .first_values = not_trained,
     .shape = {mamba_convolved, one, mamba_conv},
     .pieces = kMambaConvolution},
    {.name = "mixer.conv1d.bias",
     .split = rows,
     .first_values = not_trained,
     .shape = {mamba_convolved},
     .pieces = kMambaConvolution},
    {"mixer.dt_bias", rows, not_trained, {mamba_heads}},
    {"mixer.A_log", rows, not_trained, {mamba_heads}},
    {"mixer.D", rows, not_trained, {mamba_heads}},
    {.name = "mixer.in_proj.layer_norm_weight", .first_values = ones, .shape = {hidden}},
    {.name = "mixer.in_proj.weight",
     .split = rows,
     .shape = {mamba_input, hidden},
     .pieces = kMambaInput},
    {"mixer.norm.weight", rows, not_trained, {mamba_inner}},
    {"mixer.out_proj.weight", columns, scaled_normal, {hidden, mamba_inner}},
};

// Latent attention's norm of keys and values where norms are modules of their own.
constexpr ParameterRow kLatentNorms[] = {
    {"self_attention.kv_layernorm.weight", replicated, ones},
    {"self_attention.kv_layernorm.bias", replicated, zeros},
};

// Where no linear module takes the norm in: routers take the same input.
constexpr ParameterRow kMixtureNorm[] = {
    {"pre_mlp_layernorm.weight", replicated, ones, {hidden}},
    {"pre_mlp_layernorm.bias", replicated, zeros, {hidden}, has_layer_norm},
};

constexpr ParameterRow kMlp[] = {
    {.name = "mlp.linear_fc1.layer_norm_weight",
     .first_values = ones,
     .shape = {hidden},
     .when = has_input_norm,
     .separate_norm = "pre_mlp_layernorm.weight"},
    {.name = "mlp.linear_fc1.layer_norm_bias",
     .first_values = zeros,
     .shape = {hidden},
     .when = has_input_layer_norm,
     .separate_norm = "pre_mlp_layernorm.bias"},
    {"mlp.linear_fc1.weight", gated_rows, normal, {fc1, hidden}},
    {"mlp.linear_fc1.bias", gated_rows, zeros, {fc1}, has_linear_bias},
    {"mlp.activation_func.alpha_p", replicated, xielu_positive, {one}, has_xielu},
    {"mlp.activation_func.alpha_n", replicated, xielu_negative, {one}, has_xielu},
    {"mlp.linear_fc2.weight", columns, scaled_normal, {hidden, ffn}},
    {"mlp.linear_fc2.bias", replicated, zeros, {hidden}, has_linear_bias},
    {"mlp.linear_fc2.post_layernorm.weight", replicated, ones, {hidden}, has_output_norm},
    {"mlp.linear_fc2.post_layernorm.bias", replicated, zeros, {hidden}, has_output_layer_norm},
};

constexpr ParameterRow kMixture[] = {
    {"mlp.router.weight", replicated, normal, {experts, hidden}},
    {"mlp.router.bias", replicated, zeros, {experts}, has_linear_bias},
    {.name = "mlp.router.expert_bias",
     .first_values = zeros,
     .shape = {experts},
     .when = has_expert_bias,
     .buffer = true},
    {.name = "mlp.router.local_tokens_per_expert", .first_values = zeros, .buffer = true},
    {.name = "mlp.router.global_tokens_per_expert", .first_values = zeros, .buffer = true},
    {"mlp.fc1_latent_proj.weight", replicated, normal, {expert_width, hidden}, has_latent_experts},
    {"mlp.fc1_latent_proj.bias", replicated, zeros},
    {"mlp.fc2_latent_proj.weight", replicated, normal, {hidden, expert_width}, has_latent_experts},
    {"mlp.fc2_latent_proj.bias", replicated, zeros},
    {.name = "mlp.experts.experts.linear_fc1.weight",
     .split = gated_rows,
     .shape = {expert_fc1, expert_width},
     .routed = true},
    {.name = "mlp.experts.experts.linear_fc1.bias",
     .split = gated_rows,
     .first_values = zeros,
     .shape = {expert_fc1},
     .when = has_linear_bias,
     .routed = true},
    {.name = "mlp.experts.experts.linear_fc2.weight",
     .split = columns,
     .first_values = scaled_normal,
     .shape = {expert_width, expert_ffn},
     .routed = true},
    {.name = "mlp.experts.experts.linear_fc2.bias",
     .first_values = zeros,
     .shape = {hidden},
     .when = has_linear_bias,
     .routed = true},
};

constexpr ParameterRow kSharedExpert[] = {
    {"mlp.shared_experts.gate_weight", replicated, normal, {one, hidden}, has_shared_gate},
    {"mlp.shared_experts.linear_fc1.weight", gated_rows, normal, {shared_fc1, hidden}},
    {"mlp.shared_experts.linear_fc1.bias", gated_rows, zeros},
    {"mlp.shared_experts.linear_fc2.weight", columns, scaled_normal, {hidden, shared_ffn}},
    {"mlp.shared_experts.linear_fc2.bias", replicated, zeros},
};

// What a layer's own modules come after, in the order of registration.
constexpr ParameterRow kScalar[] = {
    {.name = "layer_scalar",
     .first_values = ones,
     .shape = {one},
     .when = scales_layers,
     .buffer = true,
     .of_model_dtype = true},
};

constexpr ParameterRow kOutputNorms[] = {
    {"post_self_attn_layernorm.weight", replicated, ones, {hidden}},
    {"post_mlp_layernorm.weight", replicated, ones, {hidden}},
};

constexpr ParameterRow kLayerEmbedding[] = {
    {"per_layer_input_gate.weight", replicated, normal, {layer_embedding, hidden}},
    {"per_layer_projection.weight", replicated, normal, {hidden, layer_embedding}},
    {"post_per_layer_input_norm.weight", replicated, ones, {hidden}},
};

constexpr Block kLayerBlocks[] = {
    {"a layer's factor", nullptr, kScalar},
    {"norm before attention", has_norm_module, kInputNorm},
    {"gated delta net", is_linear, kDeltaNet},
    {"Mamba", is_mamba, kMamba},
    {"indexer", has_indexer, kIndexer},
    {"attention output", is_softmax, kAttentionOutput},
    {"attention", is_plain, kAttention},
    {"latent attention", is_mla, kLatentAttention},
    {"query and key norms", is_plain, kHeadNorms},
    {"latent attention's separate norms", is_mla, kLatentNorms},
    {"norm before experts", has_norm_module_of_mlp, kMixtureNorm},
    {"MLP", is_dense, kMlp},
    {"mixture of experts", is_moe, kMixture},
    {"shared expert", has_shared_expert, kSharedExpert},
    {"norms of what attention and MLP give", has_output_norm_module, kOutputNorms},
    {"a token's embedding for the layer", has_layer_embeddings, kLayerEmbedding},
};

constexpr ParameterRow kMtpInput[] = {
    {"enorm.weight", replicated, ones, {hidden}},
    {"enorm.bias", replicated, zeros, {hidden}, has_layer_norm},
    {"hnorm.weight", replicated, ones, {hidden}},
    {"hnorm.bias", replicated, zeros, {hidden}, has_layer_norm},
    {"eh_proj.weight", rows, normal, {hidden, twice_hidden}},
    {"eh_proj.bias", rows, zeros},
};

constexpr ParameterRow kMtpOutput[] = {
    {"final_layernorm.weight", replicated, ones, {hidden}},
    {"final_layernorm.bias", replicated, zeros, {hidden}, has_layer_norm},
};

constexpr ParameterRow kHead[] = {
    {"decoder.final_layernorm.weight", replicated, ones, {hidden}},
    {"decoder.final_layernorm.bias", replicated, zeros, {hidden}, has_layer_norm},
    {"output_layer.weight", rows, normal, {padded_vocab, hidden}, is_untied},
    {"output_layer.bias", rows, zeros},
};

constexpr ParameterRow kLayerEmbeddings[] = {
    {"per_layer_embedding.weight",
     rows,
     normal,
     {layer_embedding_vocab, all_layer_embeddings},
     has_layer_embeddings},
    {"per_layer_model_proj.weight",
     rows,
     normal,
     {all_layer_embeddings, hidden},
     has_layer_embeddings},
    {"per_layer_proj_norm.weight", replicated, ones, {layer_embedding}, has_layer_embeddings},
};

}  // namespace

Dims ParameterRow::extents(const Architecture& architecture) const {
  Dims extents;
  for (const AxisSize size : shape) {
    if (size != nullptr) extents.push_back(size(architecture));
  }
  return extents;
}

std::span<const RowPiece> ParameterRow::stored_pieces() const {
  static constexpr RowPiece kHalves[] = {{"_w"}, {"_v"}};
  if (split == Split::gated_rows) return kHalves;
  return pieces;
}

bool ParameterRow::is_zero_centered_norm() const {
  return first_values == FirstValues::ones && name.ends_with("weight");
}

std::span<const Block> layer_blocks() { return kLayerBlocks; }
std::span<const ParameterRow> embedding_parameters() { return kEmbedding; }
std::span<const ParameterRow> mtp_input_parameters() { return kMtpInput; }
std::span<const ParameterRow> mtp_output_parameters() { return kMtpOutput; }
std::span<const ParameterRow> head_parameters() { return kHead; }
std::span<const ParameterRow> layer_embedding_parameters() { return kLayerEmbeddings; }

bool has_parameter(const Block* block, const ParameterRow& parameter,
                   const Architecture& architecture, int64_t layer) {
  if (parameter.shape[0] == nullptr) return false;
  const auto holds = [&](Condition condition) {
    return condition == nullptr || condition(architecture, layer);
  };
  return (block == nullptr || holds(block->when)) && holds(parameter.when);
}

}  // namespace ferry
