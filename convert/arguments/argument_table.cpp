#include "convert/arguments/argument_table.h"

namespace ferry {
namespace {

using A = Architecture;
constexpr ArgumentOf kAll = ArgumentOf::all;
constexpr ArgumentOf kLatent = ArgumentOf::latent;
constexpr ArgumentOf kLinear = ArgumentOf::linear;
constexpr ArgumentOf kHybrid = ArgumentOf::hybrid;
constexpr ArgumentOf kExperts = ArgumentOf::experts;
constexpr ArgumentOf kByAttention = ArgumentOf::attention_kinds;
constexpr ArgumentOf kDenseKinds = ArgumentOf::dense_kinds;
constexpr ArgumentOf kMixtureKinds = ArgumentOf::mixture_kinds;
constexpr ArgumentOf kIndexers = ArgumentOf::indexers;
constexpr ArgumentForm kPlainForm = ArgumentForm::plain;
constexpr ArgumentForm kOrNone = ArgumentForm::none_at_zero;

constexpr Argument kPlain[] = {
    {"num_layers", &A::layers},
    {"hidden_size", &A::hidden},
    {"num_attention_heads", &A::heads},
    {"ffn_hidden_size", &A::ffn},
    {"kv_channels", &A::head_dim},
    {"max_position_embeddings", &A::positions},
    {"padded_vocab_size", &A::padded_vocab},
    {"norm_epsilon", &A::norm_eps},
    {"layernorm_epsilon", &A::norm_eps, kAll, kPlainForm, "--norm-epsilon"},
    {"add_qkv_bias", &A::qkv_bias},
    {"add_bias_linear", &A::linear_bias},
    {"qk_layernorm", &A::qk_norm, kAll, kPlainForm, "--qk-layernorm"},
    {"init_method_std", &A::init_std},
    {"attention_dropout", &A::attention_dropout},
    {"hidden_dropout", &A::hidden_dropout},
    {"rotary_base", &A::rope_theta, kAll, ArgumentForm::whole},
    {"multi_latent_attention", &A::mla, kAll, kPlainForm, "--multi-latent-attention"},
    {"q_lora_rank", &A::q_lora_rank, kLatent, kOrNone, "--q-lora-rank"},
    {"kv_lora_rank", &A::kv_lora_rank, kLatent, kPlainForm, "--kv-lora-rank"},
    {"qk_head_dim", &A::qk_nope_dim, kLatent, kPlainForm, "--qk-head-dim"},
    {"qk_pos_emb_head_dim", &A::qk_rope_dim, kLatent, kPlainForm, "--qk-pos-emb-head-dim"},
    {"v_head_dim", &A::v_dim, kLatent, kPlainForm, "--v-head-dim"},
    {"linear_num_key_heads", &A::linear_key_heads, kLinear, kPlainForm, "--linear-num-key-heads"},
    {"linear_num_value_heads", &A::linear_value_heads, kLinear, kPlainForm,
     "--linear-num-value-heads"},
    {"linear_key_head_dim", &A::linear_key_dim, kLinear, kPlainForm, "--linear-key-head-dim"},
    {"linear_value_head_dim", &A::linear_value_dim, kLinear, kPlainForm, "--linear-value-head-dim"},
    {"linear_conv_kernel_dim", &A::linear_conv, kLinear, kPlainForm, "--linear-conv-kernel-dim"},
    {"mamba_num_heads", &A::mamba_heads, kHybrid, kPlainForm, "--mamba-num-heads"},
    {"mamba_head_dim", &A::mamba_head_dim, kHybrid, kPlainForm, "--mamba-head-dim"},
    {"mamba_num_groups", &A::mamba_groups, kHybrid, kPlainForm, "--mamba-num-groups"},
    {"mamba_state_dim", &A::mamba_state, kHybrid, kPlainForm, "--mamba-state-dim"},
    {"moe_latent_size", &A::expert_width, kExperts, kOrNone, "--moe-latent-size"},
    {"attention_output_gate", &A::output_gate, kAll, kPlainForm, "--attention-output-gate"},
    {"apply_layernorm_1p", &A::zero_centered_norms},
    {"layernorm_zero_centered_gamma", &A::zero_centered_norms, kAll, kPlainForm,
     "--apply-layernorm-1p"},
    {"dsa_indexer_n_heads", &A::index_heads, kIndexers, kPlainForm, "--dsa-indexer-n-heads"},
    {"dsa_indexer_head_dim", &A::index_dim, kIndexers, kPlainForm, "--dsa-indexer-head-dim"},
    {"dsa_indexer_topk", &A::index_tokens, kIndexers, kPlainForm, "--dsa-indexer-topk"},
    {"dsa_indexer_topk_freq", &A::index_every, kIndexers, kPlainForm, "--dsa-indexer-topk-freq"},
    {"dsa_indexer_skip_topk_offset", &A::index_first, kIndexers, kPlainForm,
     "--dsa-indexer-skip-topk-offset"},
    {"dsa_indexer_rope_interleaved", &A::index_rope_interleaved, kIndexers, kPlainForm,
     "--dsa-indexer-rope-interleaved"},
    {"dsa_indexer_k_norm_epsilon", &A::index_norm_eps, kIndexers, kOrNone,
     "--dsa-indexer-k-norm-epsilon"},
    {"num_moe_experts", &A::experts, kAll, kOrNone},
    {"num_experts", &A::experts, kAll, kOrNone},
    {"moe_router_topk", &A::experts_per_token, kExperts},
    {"moe_ffn_hidden_size", &A::expert_ffn, kExperts},
    {"moe_shared_expert_intermediate_size", &A::shared_ffn, kExperts, kOrNone},
    {"moe_shared_expert_gate", &A::shared_gate, kExperts, kPlainForm, "--moe-shared-expert-gate"},
    {"moe_router_pre_softmax", &A::router_pre_softmax, kExperts},
    {"moe_router_enable_expert_bias", &A::expert_bias, kExperts},
    {"moe_router_topk_scaling_factor", &A::router_scale, kExperts, kOrNone},
    {"moe_router_num_groups", &A::router_groups, kExperts, kOrNone, "--moe-router-num-groups"},
    {"moe_router_group_topk", &A::router_groups_per_token, kExperts, kOrNone,
     "--moe-router-group-topk"},
    {"moe_aux_loss_coeff", &A::aux_loss_coeff, kExperts},
    {"moe_mlp_glu_interleave_size", &A::expert_glu_block, kExperts, kOrNone,
     "--moe-mlp-glu-interleave-size"},
    {"moe_shared_expert_glu_interleave_size", &A::shared_glu_block, kExperts, kOrNone,
     "--moe-shared-expert-glu-interleave-size"},
    {"mtp_num_layers", &A::mtp_layers, kAll, kOrNone},
    // Megatron Bridge's, of Gemma 4: of dense models, and of those with experts.
    {"global_kv_channels", &A::full_head_dim, kDenseKinds, kOrNone},
    {"num_global_query_groups", &A::full_groups, kDenseKinds, kOrNone},
    {"attention_k_eq_v", &A::full_keys_are_values, kByAttention},
    {"num_kv_shared_layers", &A::kv_taking_layers, kDenseKinds},
    {"use_double_wide_mlp", &A::doubles_ffn, kDenseKinds},
    {"sliding_window_rope_base", &A::windowed_rope_theta, kDenseKinds},
    {"full_attention_rope_base", &A::rope_theta, kDenseKinds},
    {"full_attention_rope_partial_factor", &A::full_rotated_pairs, kDenseKinds},
    {"per_layer_embed_dim", &A::layer_embedding, kByAttention},
    {"per_layer_embed_vocab_size", &A::layer_embedding_vocab, kByAttention},
    {"final_logit_softcapping", &A::logit_cap, kByAttention, kOrNone},
    {"global_head_dim", &A::full_head_dim, kMixtureKinds, kOrNone},
    {"num_global_key_value_heads", &A::full_groups, kMixtureKinds, kOrNone},
    {"global_rotary_percent", &A::full_rotated_pairs, kMixtureKinds},
    {"activation_func_clamp_value", &A::glu_clamp, kAll, kOrNone, "--activation-func-clamp-value"},
    {"glu_linear_offset", &A::glu_offset, kAll, kPlainForm, "--glu-linear-offset"},
};

constexpr ActivationFlag kActivations[] = {
    {"swiglu", Activation::swiglu},
    {"squared_relu", Activation::squared_relu},
    {"quick_geglu", Activation::quick_geglu, "--quick-geglu"},
    {"xielu", Activation::xielu},
    {"xiprelu", Activation::other},
    {"xiprelup", Activation::other},
};

constexpr Word<Norm> kNorms[] = {{"RMSNorm", Norm::rms}, {"LayerNorm", Norm::layer}};
// The first word of a value is written.
constexpr Word<Positions> kPositions[] = {{"rope", Positions::rope},
                                          {"yarn", Positions::rope},
                                          {"learned_absolute", Positions::learned},
                                          {"none", Positions::none}};
constexpr Word<RouterScore> kScores[] = {{"softmax", RouterScore::softmax},
                                         {"sigmoid", RouterScore::sigmoid}};

}  // namespace

std::span<const Argument> plain_arguments() { return kPlain; }
std::span<const ActivationFlag> activation_flags() { return kActivations; }
std::span<const Word<Norm>> norm_words() { return kNorms; }
std::span<const Word<Positions>> position_words() { return kPositions; }
std::span<const Word<RouterScore>> score_words() { return kScores; }

bool has_argument(ArgumentOf of, const Architecture& a) {
  switch (of) {
    case ArgumentOf::all:
      return true;
    case ArgumentOf::latent:
      return a.mla;
    case ArgumentOf::linear:
      return a.any_linear();
    case ArgumentOf::hybrid:
      return a.is_hybrid();
    case ArgumentOf::experts:
      return a.experts > 0;
    case ArgumentOf::attention_kinds:
      return a.attention_by_kind;
    case ArgumentOf::dense_kinds:
      return a.attention_by_kind && !a.norms_parts;
    case ArgumentOf::mixture_kinds:
      return a.attention_by_kind && a.norms_parts;
    case ArgumentOf::indexers:
      return a.index_heads > 0;
  }
  return false;
}

}  // namespace ferry
