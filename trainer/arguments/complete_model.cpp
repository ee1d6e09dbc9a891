#include <fmt/format.h>

#include "ckpt/megatron/state/vocabulary.h"
#include "trainer/arguments/checks.h"
#include "trainer/arguments/complete.h"

namespace ferry {
namespace {

using Notes = std::vector<std::string>;

void need(std::string_view flag, const std::optional<int64_t>& value) {
  check_fits(value.has_value(), "{} is missing: a model needs it", flag);
}

void complete_sizes(TrainArguments& a) {
  if (a.num_layers && a.encoder_num_layers) {
    check_fits(*a.num_layers == *a.encoder_num_layers,
               "--num-layers {} and --encoder-num-layers {} are the same number: leave one out",
               *a.num_layers, *a.encoder_num_layers);
  }
  if (!a.num_layers) a.num_layers = a.encoder_num_layers;
  need("--num-layers", a.num_layers);
  a.encoder_num_layers = a.num_layers;
  need("--hidden-size", a.hidden_size);
  need("--num-attention-heads", a.num_attention_heads);
  need("--max-position-embeddings", a.max_position_embeddings);
  if (!a.seq_length) a.seq_length = a.encoder_seq_length;
  need("--seq-length", a.seq_length);
  check_fits(!a.encoder_seq_length || a.encoder_seq_length == a.seq_length,
             "--seq-length {} and --encoder-seq-length {} are the same number: leave one out",
             *a.seq_length, a.encoder_seq_length.value_or(0));
  a.encoder_seq_length = a.seq_length;
  check_fits(*a.max_position_embeddings >= *a.seq_length,
             "--max-position-embeddings {} is less than --seq-length {}: at least that many "
             "positions are needed",
             *a.max_position_embeddings, *a.seq_length);
  if (!a.ffn_hidden_size) {
    // Three matrices of this width have as many elements as two of four times the hidden size.
    a.ffn_hidden_size = a.swiglu ? *a.hidden_size * 8 / 3 / 64 * 64 : *a.hidden_size * 4;
    check_fits(*a.ffn_hidden_size > 0,
               "--hidden-size {}: too small to derive the MLP's width (a multiple of 64 with "
               "--swiglu); give --ffn-hidden-size",
               *a.hidden_size);
  }
}

void complete_attention(TrainArguments& a) {
  if (!a.kv_channels) {
    check_splits(*a.hidden_size, "elements of --hidden-size", *a.num_attention_heads,
                 "--num-attention-heads");
    a.kv_channels = *a.hidden_size / *a.num_attention_heads;
  }
  if (a.group_query_attention) {
    check_fits(!a.multi_latent_attention,
               "--multi-latent-attention has no groups: leave out --group-query-attention");
    check_splits(*a.num_attention_heads, "attention heads", a.num_query_groups,
                 "--num-query-groups");
  }
  if (!a.window_size.empty()) check_size("--window-size", a.window_size[0], -1);
}

bool is_rotary(const TrainArguments& a) {
  return a.position_embedding_type == "rope" || a.position_embedding_type == "yarn";
}

void check_yarn(const TrainArguments& a) {
  const auto positive = [](std::string_view flag, double value) {
    check_fits(value > 0, "{} {}: must be a positive number", flag, value);
  };
  positive("--rotary-scaling-factor", a.rotary_scaling_factor);
  positive("--yarn-beta-fast", a.yarn_beta_fast.value_or(1));
  positive("--yarn-beta-slow", a.yarn_beta_slow.value_or(1));
  check_fits(a.multi_latent_attention || (a.rotary_percent == 1 && !a.rotary_interleaved),
             "--position-embedding-type yarn rotates whole heads by halves: leave out "
             "--rotary-percent and --rotary-interleaved");
}

void complete_positions(TrainArguments& a) {
  if (a.use_rotary_position_embeddings) a.position_embedding_type = "rope";
  check_fits(a.add_position_embedding || is_rotary(a),
             "--no-position-embedding: give --position-embedding-type rope for a model without "
             "learned positions");
  check_fits(a.rotary_percent > 0 && a.rotary_percent <= 1,
             "--rotary-percent {}: must be between 0 and 1", a.rotary_percent);
  check_fits(a.multi_latent_attention || a.rope_type.empty() || a.rope_type == "rope",
             "--rope-type {} is for --multi-latent-attention", a.rope_type);
  if (a.position_embedding_type == "yarn") check_yarn(a);
  if (!is_rotary(a) && !a.multi_latent_attention) return;
  const auto part = static_cast<int64_t>(static_cast<double>(*a.kv_channels) * a.rotary_percent);
  const int64_t rotated = a.multi_latent_attention ? a.qk_pos_emb_head_dim : part;
  check_fits(rotated % 2 == 0,
             "{} {}: rotary positions rotate pairs of elements, so the number must be even",
             a.multi_latent_attention ? "--qk-pos-emb-head-dim"
             : a.rotary_percent == 1  ? "--kv-channels"
                                      : "--kv-channels times --rotary-percent is",
             rotated);
}

void complete_mlp(TrainArguments& a, Notes& notes) {
  check_one_of({{"--swiglu", a.swiglu},
                {"--squared-relu", a.squared_relu},
                {"--quick-geglu", a.quick_geglu},
                {"--xielu", a.xielu}});
  check_fits(a.activation_func_clamp_value.value_or(1) > 0,
             "--activation-func-clamp-value {}: must be a positive number",
             a.activation_func_clamp_value.value_or(1));
  check_fits(
      (!a.activation_func_clamp_value && a.glu_linear_offset == 0) || a.swiglu || a.quick_geglu,
      "--activation-func-clamp-value and --glu-linear-offset are for --swiglu and "
      "--quick-geglu");
  if (!a.add_bias_linear) a.bias_gelu_fusion = false;
  if (a.add_bias_linear) a.add_qkv_bias = true;
  if (a.num_experts == 0) a.num_experts.reset();
  if (!a.num_experts) return;
  check_fits(!a.xielu,
             "--xielu and --num-experts exclude each other: experts have no parameters of xIELU");
  if (!a.moe_ffn_hidden_size) {
    a.moe_ffn_hidden_size = a.ffn_hidden_size;
    notes.push_back(
        fmt::format("--moe-ffn-hidden-size is that of the dense MLP, {}", *a.ffn_hidden_size));
  }
  check_size("--moe-router-topk", a.moe_router_topk, 1, *a.num_experts);
  if (const auto* every = std::get_if<int64_t>(&a.moe_layer_freq)) {
    check_size("--moe-layer-freq", *every);
  } else if (const auto* list = std::get_if<std::vector<int64_t>>(&a.moe_layer_freq)) {
    check_fits(static_cast<int64_t>(list->size()) == *a.num_layers,
               "--moe-layer-freq has {} elements for --num-layers {}: give one for each layer",
               list->size(), *a.num_layers);
  }
  check_fits(
      a.moe_router_topk > 1 || a.moe_router_score_function != "softmax" || a.moe_router_pre_softmax,
      "--moe-router-topk 1: the softmax of one expert's score is always 1; give "
      "--moe-router-pre-softmax, or --moe-router-score-function sigmoid");
  check_fits(a.moe_aux_loss_coeff.size() == a.moe_router_load_balancing_type.size(),
             "--moe-aux-loss-coeff has {} values for {} kinds of --moe-router-load-balancing-type: "
             "give one for each",
             a.moe_aux_loss_coeff.size(), a.moe_router_load_balancing_type.size());
  int64_t counting = 0;
  for (size_t i = 0; i < a.moe_aux_loss_coeff.size(); ++i) {
    counting += a.moe_aux_loss_coeff[i] != 0 && a.moe_router_load_balancing_type[i] != "none";
  }
  check_fits(counting <= 1, "--moe-aux-loss-coeff: {} kinds of losses at once are not supported",
             counting);
  if (a.moe_router_num_groups) {
    check_splits(*a.num_experts, "experts", *a.moe_router_num_groups, "--moe-router-num-groups");
    check_fits(a.moe_router_group_topk.has_value(),
               "--moe-router-num-groups {}: give --moe-router-group-topk, how many are chosen",
               *a.moe_router_num_groups);
    check_size("--moe-router-group-topk", *a.moe_router_group_topk, 1, *a.moe_router_num_groups);
  }
}

}  // namespace

void complete_model(TrainArguments& a, Notes& notes) {
  complete_sizes(a);
  complete_attention(a);
  complete_positions(a);
  complete_mlp(a, notes);
  if (a.mtp_num_layers == 0) a.mtp_num_layers.reset();
  if (a.mtp_num_layers) {
    check_fits(is_rotary(a), "--mtp-num-layers needs --position-embedding-type rope or yarn");
  }
  if (a.apply_query_key_layer_scaling) a.attention_softmax_in_fp32 = true;
  check_fits(a.layernorm_epsilon >= 0, "--norm-epsilon {}: must be 0 or a positive number",
             a.layernorm_epsilon);
  check_fits(a.init_method_std >= 0, "--init-method-std {}: must be 0 or a positive number",
             a.init_method_std);
  const auto check_dropout = [](std::string_view flag, double p) {
    check_fits(p >= 0 && p < 1, "{} {}: must be at least 0 and less than 1", flag, p);
  };
  check_dropout("--attention-dropout", a.attention_dropout);
  check_dropout("--hidden-dropout", a.hidden_dropout);
}

void complete_vocabulary(TrainArguments& a, int64_t tokens) {
  if (!a.padded_vocab_size) {
    check_fits(
        a.tokenizer_type != "HuggingFaceTokenizer" || a.tokenizer_model.empty() || tokens != 0,
        "--vocab-size is missing: --tokenizer-model {} is not a folder on this machine from which "
        "the vocabulary size could be read",
        a.tokenizer_model);
    const std::string_view files = a.tokenizer_type == "NullTokenizer" ? ""
                                   : a.tokenizer_type == "GPT2BPETokenizer"
                                       ? "--vocab-file, or "
                                       : "--tokenizer-model, or ";
    check_fits(tokens != 0,
               "--vocab-size is missing: the vocabulary size of the tokenizer, {}, is unknown. "
               "Give {}--vocab-size",
               a.tokenizer_type, files);
    check_size("the vocabulary", tokens);
    check_size("--make-vocab-size-divisible-by", a.make_vocab_size_divisible_by);
    a.padded_vocab_size =
        padded_vocabulary(tokens, a.make_vocab_size_divisible_by, a.tensor_model_parallel_size);
  }
  check_fits(*a.padded_vocab_size >= tokens,
             "--padded-vocab-size {} is less than the tokenizer's {} tokens", *a.padded_vocab_size,
             tokens);
  check_splits(*a.padded_vocab_size, "rows of the padded vocabulary", a.tensor_model_parallel_size,
               "--tensor-model-parallel-size");
}

void complete_arguments(TrainArguments& a, const Launch& launch, Notes& notes) {
  complete_model(a, notes);
  complete_ranks(a, launch, notes);
  complete_training(a, notes);
  complete_run(a, notes);
}

}  // namespace ferry
