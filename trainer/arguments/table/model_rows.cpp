#include "trainer/arguments/argument_row.h"

namespace ferry {
namespace {

using A = TrainArguments;
using enum ArgumentKind;

constexpr ArgumentRow kModelRows[] = {
    // Transformer
    {"--num-layers", integer, "None", &A::num_layers, "1..65536"},
    {"--encoder-num-layers", integer, "None", &A::encoder_num_layers, "1..65536"},
    {"--hidden-size", integer, "None", &A::hidden_size, "1.."},
    {"--ffn-hidden-size", integer, "None", &A::ffn_hidden_size, "1.."},
    {"--num-attention-heads", integer, "None", &A::num_attention_heads, "1..65536"},
    {"--kv-channels", integer, "None", &A::kv_channels, "1..65536"},
    {"--group-query-attention", flag, "False", &A::group_query_attention},
    {"--num-query-groups", integer, "1", &A::num_query_groups, "1.."},
    {"--max-position-embeddings", integer, "None", &A::max_position_embeddings, "1.."},
    {"--position-embedding-type", text, "learned_absolute", &A::position_embedding_type,
     "learned_absolute rope"},
    {"--use-rotary-position-embeddings", flag, "False", &A::use_rotary_position_embeddings},
    {"--no-position-embedding", negated, "True", &A::add_position_embedding, "",
     "add_position_embedding"},
    {"--rotary-base", integer, "10000", &A::rotary_base, "1.."},
    {"--rotary-percent", real, "1.0", &A::rotary_percent},
    {"--rotary-interleaved", flag, "False", &A::rotary_interleaved},
    {"--rotary-seq-len-interpolation-factor", integer, "None",
     &A::rotary_seq_len_interpolation_factor, "1.."},
    {"--use-rope-scaling", flag, "False", &A::use_rope_scaling},
    {"--rope-scaling-factor", real, "8.0", &A::rope_scaling_factor},
    {"--window-size", pair, "None", &A::window_size},
    {"--window-attn-skip-freq", pattern, "None", &A::window_attn_skip_freq},
    {"--normalization", text, "LayerNorm", &A::normalization, "LayerNorm RMSNorm"},
    {"--norm-epsilon", real, "1e-05", &A::layernorm_epsilon, "", "layernorm_epsilon"},
    {"--disable-bias-linear", negated, "True", &A::add_bias_linear, "", "add_bias_linear"},
    {"--add-qkv-bias", flag, "False", &A::add_qkv_bias},
    {"--qk-layernorm", flag, "False", &A::qk_layernorm},
    {"--swiglu", flag, "False", &A::swiglu},
    {"--squared-relu", flag, "False", &A::squared_relu},
    {"--quick-geglu", flag, "False", &A::quick_geglu},
    {"--no-bias-gelu-fusion", negated, "True", &A::bias_gelu_fusion, "", "bias_gelu_fusion"},
    {"--untie-embeddings-and-output-weights", flag, "False",
     &A::untie_embeddings_and_output_weights},
    {"--init-method-std", real, "0.02", &A::init_method_std},
    {"--vocab-size", integer, "None", &A::vocab_size, "1.."},
    {"--make-vocab-size-divisible-by", integer, "128", &A::make_vocab_size_divisible_by, "1.."},
    {"--padded-vocab-size", integer, "None", &A::padded_vocab_size, "1.."},
    {"--transformer-impl", text, "transformer_engine", &A::transformer_impl,
     "local transformer_engine"},
    {"--multi-latent-attention", flag, "False", &A::multi_latent_attention},
    {"--q-lora-rank", integer, "None", &A::q_lora_rank, "1.."},
    {"--kv-lora-rank", integer, "32", &A::kv_lora_rank, "1.."},
    {"--qk-head-dim", integer, "128", &A::qk_head_dim, "1.."},
    {"--qk-pos-emb-head-dim", integer, "64", &A::qk_pos_emb_head_dim, "1.."},
    {"--v-head-dim", integer, "128", &A::v_head_dim, "1.."},
    {"--rope-type", text, "None", &A::rope_type, "rope yarn"},
    {"--rotary-scaling-factor", real, "1.0", &A::rotary_scaling_factor},
    {"--mscale", real, "1.0", &A::mscale},
    {"--mscale-all-dim", real, "0.0", &A::mscale_all_dim},
    {"--mtp-num-layers", integer, "None", &A::mtp_num_layers, "0..65536"},
    {"--mtp-loss-scaling-factor", real, "0.1", &A::mtp_loss_scaling_factor},
    {"--mtp-use-repeated-layer", flag, "False", &A::mtp_use_repeated_layer},
    // Mixture of experts
    {"--num-experts", integer, "None", &A::num_experts, "0..65536"},
    {"--moe-layer-freq", pattern, "1", &A::moe_layer_freq},
    {"--moe-ffn-hidden-size", integer, "None", &A::moe_ffn_hidden_size, "1.."},
    {"--moe-grouped-gemm", flag, "False", &A::moe_grouped_gemm},
    {"--moe-shared-expert-intermediate-size", integer, "None",
     &A::moe_shared_expert_intermediate_size, "1.."},
    {"--moe-shared-expert-gate", flag, "False", &A::moe_shared_expert_gate},
    {"--moe-router-topk", integer, "2", &A::moe_router_topk, "1.."},
    {"--moe-router-score-function", text, "softmax", &A::moe_router_score_function,
     "softmax sigmoid"},
    {"--moe-router-pre-softmax", flag, "False", &A::moe_router_pre_softmax},
    {"--moe-router-num-groups", integer, "None", &A::moe_router_num_groups, "1.."},
    {"--moe-router-group-topk", integer, "None", &A::moe_router_group_topk, "1.."},
    {"--moe-router-topk-scaling-factor", real, "None", &A::moe_router_topk_scaling_factor},
    {"--moe-router-dtype", text, "None", &A::moe_router_dtype, "fp32 fp64"},
    {"--moe-router-enable-expert-bias", flag, "False", &A::moe_router_enable_expert_bias},
    {"--moe-router-bias-update-rate", real, "0.001", &A::moe_router_bias_update_rate},
    {"--moe-router-load-balancing-type", texts, "aux_loss", &A::moe_router_load_balancing_type,
     "aux_loss seq_aux_loss global_aux_loss none"},
    {"--moe-aux-loss-coeff", reals, "0.0", &A::moe_aux_loss_coeff},
    {"--moe-z-loss-coeff", real, "None", &A::moe_z_loss_coeff},
    {"--moe-token-dispatcher-type", text, "allgather", &A::moe_token_dispatcher_type,
     "allgather alltoall flex"},
};

}  // namespace

std::span<const ArgumentRow> model_rows() { return kModelRows; }

}  // namespace ferry
