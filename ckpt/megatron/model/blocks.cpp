#include "ckpt/megatron/model/blocks.h"

#include "ckpt/megatron/model/block_sizes.h"

namespace ferry {
namespace {

using namespace block;
using enum Split;
using enum FirstValues;

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
    {"mlp.router.per_expert_scale", replicated, ones, {experts}, norms_parts},
    {"mlp.router.scale", replicated, ones, {hidden}, norms_parts},
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

// Norms of what the experts give, of what the shared expert takes, and of all that an MLP gives.
constexpr ParameterRow kPartNorms[] = {
    {"mlp.post_moe_layernorm.weight", replicated, ones, {hidden}},
    {"mlp.post_shared_expert_layernorm.weight", replicated, ones, {hidden}},
    {"pre_shared_expert_layernorm.weight", replicated, ones, {hidden}},
    {"post_ffn_layernorm.weight", replicated, ones, {hidden}},
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
    {"norms of a mixture's parts", norms_parts, kPartNorms},
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
