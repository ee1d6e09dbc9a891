#include "trainer/arguments/argument_row.h"

namespace ferry {

namespace {

using A = TrainArguments;
using enum ArgumentKind;

constexpr ArgumentRow kParallelRows[] = {
    // Ranks, optimizer shards, recomputation
    {"--tensor-model-parallel-size", integer, "1", &A::tensor_model_parallel_size, "1..1048576"},
    {"--pipeline-model-parallel-size", integer, "1", &A::pipeline_model_parallel_size,
     "1..1048576"},
    {"--sequence-parallel", flag, "False", &A::sequence_parallel},
    {"--context-parallel-size", integer, "1", &A::context_parallel_size, "1..1048576"},
    {"--expert-model-parallel-size", integer, "1", &A::expert_model_parallel_size, "1..1048576"},
    {"--expert-tensor-parallel-size", integer, "None", &A::expert_tensor_parallel_size,
     "1..1048576"},
    {"--num-layers-per-virtual-pipeline-stage", integer, "None",
     &A::num_layers_per_virtual_pipeline_stage, "1.."},
    {"--num-virtual-stages-per-pipeline-rank", integer, "None",
     &A::num_virtual_stages_per_pipeline_rank, "1..65536"},
    {"--decoder-first-pipeline-num-layers", integer, "None", &A::decoder_first_pipeline_num_layers,
     "0.."},
    {"--decoder-last-pipeline-num-layers", integer, "None", &A::decoder_last_pipeline_num_layers,
     "0.."},
    {"--pipeline-model-parallel-layout", text, "None", &A::pipeline_model_parallel_layout},
    {"--account-for-embedding-in-pipeline-split", flag, "False",
     &A::account_for_embedding_in_pipeline_split},
    {"--account-for-loss-in-pipeline-split", flag, "False", &A::account_for_loss_in_pipeline_split},
    {"--microbatch-group-size-per-virtual-pipeline-stage", integer, "None",
     &A::microbatch_group_size_per_vp_stage, "1..", "microbatch_group_size_per_vp_stage"},
    {"--no-overlap-p2p-communication", negated, "True", &A::overlap_p2p_comm, "",
     "overlap_p2p_comm"},
    {"--no-align-param-gather", negated, "True", &A::align_param_gather, "", "align_param_gather"},
    {"--tensor-parallel-num-weight-shards", integer, "None", &A::tensor_parallel_num_weight_shards,
     "1..1048576"},
    {"--expert-tensor-parallel-num-weight-shards", integer, "None",
     &A::expert_tensor_parallel_num_weight_shards, "1..1048576"},
    {"--use-distributed-optimizer", flag, "False", &A::use_distributed_optimizer},
    {"--overlap-grad-reduce", flag, "False", &A::overlap_grad_reduce},
    {"--overlap-param-gather", flag, "False", &A::overlap_param_gather},
    {"--ddp-bucket-size", integer, "None", &A::ddp_bucket_size, "1.."},
    {"--ddp-num-buckets", integer, "None", &A::ddp_num_buckets, "1.."},
    {"--ddp-pad-buckets-for-high-nccl-busbw", flag, "False",
     &A::ddp_pad_buckets_for_high_nccl_busbw},
    {"--recompute-granularity", text, "None", &A::recompute_granularity, "full selective"},
    {"--recompute-method", text, "None", &A::recompute_method, "uniform block"},
    {"--recompute-num-layers", integer, "None", &A::recompute_num_layers, "1.."},
    {"--recompute-modules", texts, "None", &A::recompute_modules},
};

}  // namespace

std::span<const ArgumentRow> parallel_rows() { return kParallelRows; }

namespace {

using A = TrainArguments;
using enum ArgumentKind;

constexpr ArgumentRow kRunRows[] = {
    // Checkpoints
    {"--save", text, "None", &A::save},
    {"--save-interval --persistent-save-interval", integer, "None", &A::save_interval, "1.."},
    {"--save-retain-interval", integer, "None", &A::save_retain_interval, "1.."},
    {"--load", text, "None", &A::load},
    {"--finetune", flag, "False", &A::finetune},
    {"--pretrained-checkpoint", text, "None", &A::pretrained_checkpoint},
    {"--ckpt-step", integer, "None", &A::ckpt_step, "0.."},
    {"--override-ckpt-iteration", integer, "None", &A::override_ckpt_iteration, "0.."},
    {"--no-save-optim", flag, "None", &A::no_save_optim},
    {"--no-save-rng", flag, "None", &A::no_save_rng},
    {"--no-load-optim", flag, "None", &A::no_load_optim},
    {"--no-load-rng", flag, "None", &A::no_load_rng},
    {"--load-main-params-from-ckpt", flag, "False", &A::load_main_params_from_ckpt},
    {"--use-checkpoint-args", flag, "False", &A::use_checkpoint_args},
    {"--use-mp-args-from-checkpoint-args", flag, "False", &A::use_mp_args_from_checkpoint_args},
    {"--no-use-tokenizer-model-from-checkpoint-args "
     "--disable-use-tokenizer-model-from-checkpoint-args",
     negated, "True", &A::use_tokenizer_model_from_checkpoint_args, "",
     "use_tokenizer_model_from_checkpoint_args"},
    {"--exit-on-missing-checkpoint", flag, "False", &A::exit_on_missing_checkpoint},
    {"--ckpt-format", text, "torch_dist", &A::ckpt_format, "torch torch_dist"},
    {"--async-save", flag, "False", &A::async_save},
    {"--async-strategy", text, "nvrx", &A::async_strategy, "nvrx mcore"},
    {"--no-ckpt-fully-parallel-save", negated, "True", &A::ckpt_fully_parallel_save, "",
     "ckpt_fully_parallel_save"},
    {"--ckpt-fully-parallel-load", flag, "False", &A::ckpt_fully_parallel_load},
    {"--dist-ckpt-workers", integer, "1", &A::dist_ckpt_workers, "1..1024"},
    {"--dist-ckpt-optim-fully-reshardable", flag, "False", &A::dist_ckpt_optim_fully_reshardable},
    {"--dist-ckpt-strictness", text, "assume_ok_unexpected", &A::dist_ckpt_strictness,
     "assume_ok_unexpected log_unexpected log_all raise_unexpected raise_all return_unexpected "
     "return_all ignore_all"},
    {"--verify-integrity", flag, "False", &A::verify_integrity},
    {"--non-persistent-save-interval", integer, "None", &A::non_persistent_save_interval, "1.."},
    {"--non-persistent-ckpt-type", text, "None", &A::non_persistent_ckpt_type, "global"},
    {"--non-persistent-global-ckpt-dir", text, "None", &A::non_persistent_global_ckpt_dir},
    // Logging
    {"--log-interval", integer, "100", &A::log_interval, "1.."},
    {"--log-throughput", flag, "False", &A::log_throughput},
    {"--log-progress", flag, "False", &A::log_progress},
    {"--log-params-norm", flag, "False", &A::log_params_norm},
    {"--log-num-zeros-in-grad", flag, "False", &A::log_num_zeros_in_grad},
    {"--timing-log-level", integer, "0", &A::timing_log_level, "0 1 2"},
    {"--timing-log-option", text, "minmax", &A::timing_log_option, "max minmax all"},
    {"--profile", flag, "False", &A::profile},
    {"--profile-step-start", integer, "10", &A::profile_step_start, "0.."},
    {"--profile-step-end", integer, "12", &A::profile_step_end, "1.."},
    {"--profile-ranks", integers, "[]", &A::profile_ranks},
    {"--nvtx-ranges", flag, "False", &A::nvtx_ranges},
    {"--tensorboard-dir", text, "None", &A::tensorboard_dir},
    {"--tensorboard-log-interval", integer, "1", &A::tensorboard_log_interval, "1.."},
    {"--log-timers-to-tensorboard", flag, "False", &A::log_timers_to_tensorboard},
    {"--no-log-loss-scale-to-tensorboard --disable-log-loss-scale-to-tensorboard", negated, "True",
     &A::log_loss_scale_to_tensorboard, "", "log_loss_scale_to_tensorboard"},
    {"--log-validation-ppl-to-tensorboard", flag, "False", &A::log_validation_ppl_to_tensorboard},
    {"--log-world-size-to-tensorboard", flag, "False", &A::log_world_size_to_tensorboard},
    // Exit
    {"--exit-interval", integer, "None", &A::exit_interval, "1.."},
    {"--exit-duration-in-mins", integer, "None", &A::exit_duration_in_mins, "1.."},
    {"--exit-signal-handler", flag, "False", &A::exit_signal_handler},
    {"--exit-signal", signal, "SIGTERM", &A::exit_signal},
    {"--phase-transition-iterations", text, "None", &A::phase_transition_iterations},
};

}  // namespace

std::span<const ArgumentRow> run_rows() { return kRunRows; }

namespace {

using A = TrainArguments;
using enum ArgumentKind;
constexpr ArgumentStatus kDerived = ArgumentStatus::derived;
constexpr ArgumentStatus kSaved = ArgumentStatus::saved;
constexpr ArgumentStatus kFork = ArgumentStatus::fork;
constexpr ArgumentStatus kRemoved = ArgumentStatus::removed;

constexpr ArgumentRow kDerivedRows[] = {
    {"", flag, "False", &A::is_global_batch_size_explicit, "",
     "_is_global_batch_size_explicitly_specified", kDerived},
    {"", integer, "0", &A::consumed_train_samples, "", "consumed_train_samples", kDerived},
    {"", integer, "0", &A::skipped_train_samples, "", "skipped_train_samples", kDerived},
    {"", integer, "0", &A::consumed_valid_samples, "", "consumed_valid_samples", kDerived},
    {"", integer, "1", &A::world_size, "", "world_size", kDerived},
    {"", integer, "1", &A::world_size, "", "inprocess_active_world_size", kDerived},
    {"", integer, "0", &A::rank, "", "rank", kDerived},
    {"", integer, "1", &A::transformer_pipeline_model_parallel_size, "",
     "transformer_pipeline_model_parallel_size", kDerived},
    {"", integer, "None", &A::virtual_pipeline_model_parallel_size, "",
     "virtual_pipeline_model_parallel_size", kDerived},
    {"", text, "torch.float32", &A::params_dtype, "", "params_dtype", kDerived},
    {"", flag, "True", &A::use_dist_ckpt, "", "use_dist_ckpt", kDerived},
    {"", integer, "1", {}, "", "gtp_weight_remat_size", kDerived},
    {"", integer, "1", {}, "", "expert_gtp_weight_remat_size", kDerived},
    {"", flag, "False", {}, "", "use_layer_wise_distributed_optimizer", kDerived},
    {"", flag, "False", {}, "", "variable_seq_lengths", kDerived},
    // 0: what the launcher's ranks leave over, or 1.
    {"--data-parallel-size", integer, "0", &A::data_parallel_size, "0..1048576", "", kDerived},
    {"", integer, "None", {}, "", "iteration", kSaved},
    {"", integer, "None", {}, "", "curr_iteration", kSaved},
    {"", real, "None", {}, "", "num_floating_point_operations_so_far", kSaved},
    {"", integer, "1", {}, "", "do_train", kSaved},
    {"", integer, "0", {}, "", "do_valid", kSaved},
    {"", integer, "0", {}, "", "do_test", kSaved},
};

constexpr ArgumentRow kForkRows[] = {
    // swiss-ai/Megatron-LM
    {"--trigger-path", text, "None", &A::trigger_path, "", "", kFork},
    {"--save-trigger", text, "save", &A::save_trigger, "", "", kFork},
    {"--exit-trigger", text, "exit", &A::exit_trigger, "", "", kFork},
    {"--ademamix-alpha", real, "5.0", &A::ademamix_alpha, "", "", kFork},
    {"--ademamix-alpha-warmup", integer, "-1", &A::ademamix_alpha_warmup, "-1..", "", kFork},
    {"--ademamix-beta3", real, "0.999", &A::ademamix_beta3, "", "", kFork},
    {"--ademamix-beta3-warmup", integer, "-1", &A::ademamix_beta3_warmup, "-1..", "", kFork},
    {"--goldfish-loss", flag, "False", &A::goldfish_loss, "", "", kFork},
    {"--goldfish-k", integer, "50", &A::goldfish_k, "1..", "", kFork},
    {"--goldfish-h", integer, "50", &A::goldfish_h, "1..", "", kFork},
    {"--xielu", flag, "False", &A::xielu, "", "", kFork},
    // Our own
    {"--dry-run", flag, "False", &A::dry_run, "", "", kFork},
    {"--metrics-json", text, "None", &A::metrics_json, "", "", kFork},
    {"--device", text, "auto", &A::device, "auto cpu cuda", "", kFork},
    {"--after-save", text, "None", &A::after_save, "", "", kFork},
    {"--after-save-seconds", integer, "3600", &A::after_save_seconds, "1..31536000", "", kFork},
    {"--keep-last", integer, "None", &A::keep_last, "1..", "", kFork},
    {"--free-space-for-saves", flag, "False", &A::free_space_for_saves, "", "", kFork},
    {"--staging-memory", text, "None", &A::staging_memory, "", "", kFork},
    {"--stopped-exit-code", integer, "0", &A::stopped_exit_code, "0..255", "", kFork},
};

// Megatron-LM deletes them after use.
constexpr ArgumentRow kRemovedRows[] = {
    {"--recompute-activations", flag, "False", &A::recompute_activations, "", "", kRemoved},
    {"--batch-size", integer, "None", {}, "", "", kRemoved},
    {"--checkpoint-activations", flag, "False", {}, "", "", kRemoved},
    {"--warmup", integer, "None", {}, "", "", kRemoved},
    {"--model-parallel-size", integer, "None", {}, "", "", kRemoved},
    {"--cuda-graph-scope", texts, "None", {}, "", "cuda_graph_scope_deprecated", kRemoved},
};

}  // namespace

std::span<const ArgumentRow> derived_rows() { return kDerivedRows; }
std::span<const ArgumentRow> fork_rows() { return kForkRows; }
std::span<const ArgumentRow> removed_rows() { return kRemovedRows; }

}  // namespace ferry
