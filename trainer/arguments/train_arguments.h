// The arguments of a training run under Megatron-LM's names: a member for each argument that is
// used, grouped by topic so that functions can take the topic they need. After complete_arguments()
// the values are those that Megatron-LM's validate_args() leaves. An empty string or list, or an
// absent number, is Python's None.
//
// Source: Megatron-LM megatron/training/arguments.py, training/config, core/transformer/
// transformer_config.py, core/model_parallel_config.py; swiss-ai/Megatron-LM for trigger files,
// AdEMAMix and goldfish loss.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "trainer/arguments/argument_value.h"

namespace ferry {

struct ModelArguments {
  std::optional<int64_t> num_layers, encoder_num_layers, hidden_size, ffn_hidden_size;
  std::optional<int64_t> num_attention_heads, kv_channels;
  bool group_query_attention = false;
  int64_t num_query_groups = 0;
  std::optional<int64_t> max_position_embeddings;
  std::string position_embedding_type;
  bool use_rotary_position_embeddings = false, add_position_embedding = false;
  int64_t rotary_base = 0;
  double rotary_percent = 0;
  LayerPattern no_rope_freq;  // 1: the layer has no rotary positions
  bool rotary_interleaved = false;
  std::optional<int64_t> rotary_seq_len_interpolation_factor;
  bool use_rope_scaling = false;
  double rope_scaling_factor = 0;
  std::optional<int64_t> yarn_original_max_position_embeddings;
  std::optional<double> yarn_beta_fast, yarn_beta_slow;
  std::optional<bool> yarn_correction_range_round_to_int;
  std::vector<int64_t> window_size;
  LayerPattern window_attn_skip_freq;
  std::string softmax_type;
  std::string normalization;
  double layernorm_epsilon = 0;
  bool add_bias_linear = false, add_qkv_bias = false, qk_layernorm = false;
  bool swiglu = false, squared_relu = false, quick_geglu = false, xielu = false;
  std::optional<double> activation_func_clamp_value;  // of gated functions
  double glu_linear_offset = 0;
  bool bias_gelu_fusion = false;  // with biases: the GELU is the tanh form
  bool untie_embeddings_and_output_weights = false;
  double init_method_std = 0;
  std::optional<int64_t> vocab_size, padded_vocab_size;
  int64_t make_vocab_size_divisible_by = 0;
  std::string transformer_impl;   // names and order of parameters in checkpoints
  std::string attention_backend;  // "AttnBackend.auto"

  bool multi_latent_attention = false;
  std::optional<int64_t> q_lora_rank;
  int64_t kv_lora_rank = 0, qk_head_dim = 0, qk_pos_emb_head_dim = 0, v_head_dim = 0;
  std::string rope_type;
  double rotary_scaling_factor = 0, mscale = 0, mscale_all_dim = 0;

  std::optional<int64_t> mtp_num_layers;
  double mtp_loss_scaling_factor = 0;
  bool mtp_use_repeated_layer = false;
};

struct ExpertArguments {
  std::optional<int64_t> num_experts, moe_ffn_hidden_size, moe_shared_expert_intermediate_size;
  LayerPattern moe_layer_freq;
  bool moe_grouped_gemm = false, moe_shared_expert_gate = false;
  int64_t moe_router_topk = 0;
  std::string moe_router_score_function, moe_router_dtype;
  bool moe_router_pre_softmax = false, moe_router_enable_expert_bias = false;
  std::optional<int64_t> moe_router_num_groups, moe_router_group_topk;
  std::optional<double> moe_router_topk_scaling_factor, moe_z_loss_coeff;
  double moe_router_bias_update_rate = 0;
  std::vector<std::string> moe_router_load_balancing_type;
  std::vector<double> moe_aux_loss_coeff;  // one for each of these
  std::string moe_token_dispatcher_type;
};

struct ParallelArguments {
  int64_t world_size = 1, rank = 0, data_parallel_size = 0;  // 0: what the other sizes leave over
  int64_t tensor_model_parallel_size = 0, pipeline_model_parallel_size = 0;
  int64_t context_parallel_size = 0, expert_model_parallel_size = 0;
  std::optional<int64_t> expert_tensor_parallel_size;
  bool sequence_parallel = false;
  std::optional<int64_t> virtual_pipeline_model_parallel_size;
  std::optional<int64_t> num_layers_per_virtual_pipeline_stage;
  std::optional<int64_t> num_virtual_stages_per_pipeline_rank;
  std::optional<int64_t> decoder_first_pipeline_num_layers, decoder_last_pipeline_num_layers;
  std::string pipeline_model_parallel_layout;
  bool account_for_embedding_in_pipeline_split = false, account_for_loss_in_pipeline_split = false;
  std::optional<int64_t> microbatch_group_size_per_vp_stage;
  int64_t transformer_pipeline_model_parallel_size = 1;
  std::optional<int64_t> tensor_parallel_num_weight_shards;  // equals the tensor ranks
  std::optional<int64_t> expert_tensor_parallel_num_weight_shards;
  bool overlap_p2p_comm = false, align_param_gather = false;

  bool use_distributed_optimizer = false;
  bool overlap_grad_reduce = false, overlap_param_gather = false;  // determine gradient buckets
  std::optional<int64_t> ddp_bucket_size, ddp_num_buckets;
  bool ddp_pad_buckets_for_high_nccl_busbw = false;

  bool recompute_activations = false;
  std::string recompute_granularity, recompute_method;
  std::optional<int64_t> recompute_num_layers;
  std::vector<std::string> recompute_modules;
};

struct BatchArguments {
  std::optional<int64_t> micro_batch_size, global_batch_size;
  bool is_global_batch_size_explicit = false;
  std::vector<int64_t> rampup_batch_size;  // start, increment, samples
  std::string step_batch_size_schedule;    // "0:768 250B:1536"
  bool decrease_batch_size_if_needed = false;
  std::optional<int64_t> train_iters, train_samples;
  std::vector<int64_t> iterations_to_skip;
  int64_t consumed_train_samples = 0, skipped_train_samples = 0, consumed_valid_samples = 0;
};

struct DataArguments {
  std::optional<int64_t> seq_length, encoder_seq_length;
  std::vector<std::string> data_path, train_data_path, valid_data_path, test_data_path;
  std::string split, data_args_path, per_split_data_args_path, data_cache_path;
  bool mock_data = false;
  double mid_level_dataset_surplus = 0;
  std::string dataloader_type;
  bool data_sharding = false;
  bool reset_position_ids = false, reset_attention_mask = false, eod_mask_loss = false;
  bool create_attention_mask_in_dataloader = true;  // false: --reset-attention-mask does nothing
  bool goldfish_loss = false;
  int64_t goldfish_k = 0, goldfish_h = 0;
  std::string tokenizer_type, tokenizer_model, vocab_file, merge_file;
  std::optional<int64_t> null_tokenizer_eod_id;
  int64_t null_tokenizer_pad_id = -1;
  bool allow_ambiguous_pad_tokens = false;
  /// Token ids. Not arguments: read from the tokenizer's files.
  std::optional<int64_t> end_of_document, padding;
  int64_t eval_iters = 0;
  std::optional<int64_t> eval_interval, start_eval_at_iter;
  std::optional<int64_t> eval_global_batch_size, eval_micro_batch_size;
  bool skip_train = false;
  int64_t seed = 0;
};

struct OptimizerArguments {
  std::string optimizer;
  double adam_beta1 = 0, adam_beta2 = 0, adam_eps = 0, sgd_momentum = 0, clip_grad = 0;
  double ademamix_alpha = 0, ademamix_beta3 = 0;
  int64_t ademamix_alpha_warmup = 0, ademamix_beta3_warmup = 0;  // iterations; -1: none
  bool accumulate_allreduce_grads_in_fp32 = false, grad_reduce_in_bf16 = false;
  bool use_precision_aware_optimizer = false;
  std::string main_grads_dtype, main_params_dtype;  // "torch.float32"
  std::string exp_avg_dtype, exp_avg_sq_dtype;
  bool calculate_per_token_loss = false, check_for_nan_in_loss_and_grad = false;
  bool check_for_spiky_loss = false;
};

struct ScheduleArguments {
  std::optional<double> lr, decoupled_lr, decoupled_min_lr;
  double min_lr = 0;
  std::string lr_decay_style, lr_wsd_decay_style;
  std::optional<int64_t> lr_decay_iters, lr_decay_samples;
  std::optional<int64_t> lr_wsd_decay_iters, lr_wsd_decay_samples;
  std::optional<double> lr_warmup_fraction;  // of the decay
  int64_t lr_warmup_iters = 0, lr_warmup_samples = 0;
  double lr_warmup_init = 0;
  bool override_opt_param_scheduler = false, use_checkpoint_opt_param_scheduler = false;
};

struct RegularisationArguments {
  double attention_dropout = 0, hidden_dropout = 0, weight_decay = 0;
  std::optional<double> start_weight_decay, end_weight_decay;
  std::string weight_decay_incr_style;
  bool apply_wd_to_qk_layernorm = false;
  std::string no_weight_decay_cond_type;  // older name of the same
};

struct PrecisionArguments {
  bool fp16 = false, bf16 = false;
  std::string params_dtype;  // "torch.bfloat16"
  std::optional<double> loss_scale;
  double initial_loss_scale = 0, min_loss_scale = 0;
  double loss_scale_window = 0;
  int64_t hysteresis = 0;
  bool attention_softmax_in_fp32 = false, apply_query_key_layer_scaling = false;

  std::string fp8, fp8_recipe;  // "hybrid", "delayed"
  int64_t fp8_margin = 0, fp8_amax_history_len = 0;
  std::string fp8_amax_compute_algo;
  bool fp8_wgrad = false;
  bool first_last_layers_bf16 = false;
  int64_t num_layers_at_start_in_bf16 = 0, num_layers_at_end_in_bf16 = 0;
};

struct CheckpointArguments {
  std::string save, load, pretrained_checkpoint;
  std::optional<int64_t> save_interval, save_retain_interval;
  std::string device;                 // cuda, cpu; auto: GPUs where there are any
  std::optional<int64_t> keep_last;   // checkpoints kept in addition to the retained ones
  bool free_space_for_saves = false;  // delete old ones when the disk is full
  std::string after_save;             // command to run after each save
  int64_t after_save_seconds = 0;     // its time limit
  /// Limit of a rank's host memory for staging saves.
  std::string staging_memory;     // a size; empty: what the host has
  int64_t stopped_exit_code = 0;  // exit code if stopped before the last iteration
  bool finetune = false;
  std::optional<int64_t> ckpt_step, override_ckpt_iteration;
  bool no_save_optim = false, no_save_rng = false, no_load_optim = false, no_load_rng = false;
  bool load_main_params_from_ckpt = false;
  bool use_checkpoint_args = false, use_mp_args_from_checkpoint_args = false;
  bool use_tokenizer_model_from_checkpoint_args = false;
  bool exit_on_missing_checkpoint = false;
  std::string ckpt_format;
  bool use_dist_ckpt = false;
  bool async_save = false;
  std::string async_strategy;
  bool ckpt_fully_parallel_save = false, ckpt_fully_parallel_load = false;
  int64_t dist_ckpt_workers = 0;  // files a rank
  bool dist_ckpt_optim_fully_reshardable = false;
  std::string dist_ckpt_strictness;
  bool verify_integrity = false;
  std::optional<int64_t> non_persistent_save_interval;
  std::string non_persistent_ckpt_type, non_persistent_global_ckpt_dir;
};

struct LoggingArguments {
  int64_t log_interval = 0;
  bool log_throughput = false, log_progress = false;
  bool log_params_norm = false, log_num_zeros_in_grad = false;
  int64_t timing_log_level = 0;
  std::string timing_log_option;
  bool profile = false, nvtx_ranges = false;
  int64_t profile_step_start = 0, profile_step_end = 0;
  std::vector<int64_t> profile_ranks;  // none: all
  std::string tensorboard_dir;
  int64_t tensorboard_log_interval = 0;
  bool log_timers_to_tensorboard = false, log_loss_scale_to_tensorboard = false;
  bool log_validation_ppl_to_tensorboard = false, log_world_size_to_tensorboard = false;
  std::string metrics_json;  // a file that gets one JSON object a line
};

struct ExitArguments {
  std::optional<int64_t> exit_interval, exit_duration_in_mins;
  bool exit_signal_handler = false;
  std::string exit_signal;  // "SIGTERM"
  std::string phase_transition_iterations;
  std::string trigger_path, save_trigger, exit_trigger;  // folder, names of files in it
  bool dry_run = false;
};

struct TrainArguments : ModelArguments,
                        ExpertArguments,
                        ParallelArguments,
                        BatchArguments,
                        DataArguments,
                        OptimizerArguments,
                        ScheduleArguments,
                        RegularisationArguments,
                        PrecisionArguments,
                        CheckpointArguments,
                        LoggingArguments,
                        ExitArguments {
  /// Ignored arguments that were given a value other than their default, by name.
  std::map<std::string, ArgumentValue, std::less<>> others;
};

/// Whether cuDNN computes attention on GPUs; otherwise ferry's own kernels do.
inline bool has_fused_attention(const TrainArguments& arguments) {
  return arguments.attention_backend == "AttnBackend.fused";
}

/// All arguments at their defaults.
TrainArguments default_arguments();

}  // namespace ferry
