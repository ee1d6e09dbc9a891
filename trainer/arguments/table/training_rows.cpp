#include "trainer/arguments/argument_row.h"

namespace ferry {
namespace {

using A = TrainArguments;
using enum ArgumentKind;

constexpr ArgumentRow kTrainingRows[] = {
    // Batches
    {"--micro-batch-size", integer, "None", &A::micro_batch_size, "1.."},
    {"--global-batch-size", integer, "None", &A::global_batch_size, "1.."},
    {"--rampup-batch-size", integers, "None", &A::rampup_batch_size},
    {"--step-batch-size-schedule", text, "None", &A::step_batch_size_schedule},
    {"--decrease-batch-size-if-needed", flag, "False", &A::decrease_batch_size_if_needed},
    {"--train-iters", integer, "None", &A::train_iters, "0.."},
    {"--train-samples", integer, "None", &A::train_samples, "0.."},
    {"--iterations-to-skip", integers, "[]", &A::iterations_to_skip},
    // Data
    {"--seq-length", integer, "None", &A::seq_length, "1.."},
    {"--encoder-seq-length", integer, "None", &A::encoder_seq_length, "1.."},
    {"--data-path", texts, "None", &A::data_path},
    {"--split", text, "None", &A::split},
    {"--train-data-path", texts, "None", &A::train_data_path},
    {"--valid-data-path", texts, "None", &A::valid_data_path},
    {"--test-data-path", texts, "None", &A::test_data_path},
    {"--data-args-path", text, "None", &A::data_args_path},
    {"--per-split-data-args-path", text, "None", &A::per_split_data_args_path},
    {"--data-cache-path", text, "None", &A::data_cache_path},
    {"--mock-data", flag, "False", &A::mock_data},
    {"--mid-level-dataset-surplus", real, "0.005", &A::mid_level_dataset_surplus},
    {"--dataloader-type", text, "None", &A::dataloader_type, "single cyclic"},
    {"--no-data-sharding", negated, "True", &A::data_sharding, "", "data_sharding"},
    {"--reset-position-ids", flag, "False", &A::reset_position_ids},
    {"--reset-attention-mask", flag, "False", &A::reset_attention_mask},
    {"--eod-mask-loss", flag, "False", &A::eod_mask_loss},
    {"--tokenizer-type", text, "None", &A::tokenizer_type,
     "BertWordPieceLowerCase BertWordPieceCase GPT2BPETokenizer SentencePieceTokenizer "
     "GPTSentencePieceTokenizer HuggingFaceTokenizer Llama2Tokenizer TikTokenizer "
     "MultimodalTokenizer NullTokenizer NullMultimodalTokenizer SFTTokenizer"},
    {"--tokenizer-model", text, "None", &A::tokenizer_model},
    {"--vocab-file", text, "None", &A::vocab_file},
    {"--merge-file", text, "None", &A::merge_file},
    {"--null-tokenizer-eod-id", integer, "None", &A::null_tokenizer_eod_id, "0.."},
    {"--eval-iters", integer, "100", &A::eval_iters, "0.."},
    {"--eval-interval", integer, "None", &A::eval_interval, "1.."},
    {"--start-eval-at-iter", integer, "None", &A::start_eval_at_iter, "0.."},
    {"--eval-global-batch-size", integer, "None", &A::eval_global_batch_size, "1.."},
    {"--eval-micro-batch-size", integer, "None", &A::eval_micro_batch_size, "1.."},
    {"--skip-train", flag, "False", &A::skip_train},
    {"--seed", integer, "1234", &A::seed, "1..4294967295"},
    // Optimizer
    {"--optimizer", text, "adam", &A::optimizer, "adam sgd ademamix"},
    {"--adam-beta1", real, "0.9", &A::adam_beta1},
    {"--adam-beta2", real, "0.999", &A::adam_beta2},
    {"--adam-eps", real, "1e-08", &A::adam_eps},
    {"--sgd-momentum", real, "0.9", &A::sgd_momentum},
    {"--clip-grad", real, "1.0", &A::clip_grad},
    {"--accumulate-allreduce-grads-in-fp32", flag, "False", &A::accumulate_allreduce_grads_in_fp32},
    {"--grad-reduce-in-bf16", flag, "False", &A::grad_reduce_in_bf16},
    {"--use-precision-aware-optimizer", flag, "False", &A::use_precision_aware_optimizer},
    {"--main-grads-dtype", dtype, "torch.float32", &A::main_grads_dtype, "fp32 bf16"},
    {"--main-params-dtype", dtype, "torch.float32", &A::main_params_dtype, "fp32 fp16"},
    {"--exp-avg-dtype", dtype, "torch.float32", &A::exp_avg_dtype, "fp32 fp16 bf16 fp8"},
    {"--exp-avg-sq-dtype", dtype, "torch.float32", &A::exp_avg_sq_dtype, "fp32 fp16 bf16 fp8"},
    {"--calculate-per-token-loss", flag, "False", &A::calculate_per_token_loss},
    {"--no-check-for-nan-in-loss-and-grad", negated, "True", &A::check_for_nan_in_loss_and_grad, "",
     "check_for_nan_in_loss_and_grad"},
    {"--check-for-spiky-loss", flag, "False", &A::check_for_spiky_loss},
    // Schedules
    {"--lr", real, "None", &A::lr},
    {"--min-lr", real, "0.0", &A::min_lr},
    {"--decoupled-lr", real, "None", &A::decoupled_lr},
    {"--decoupled-min-lr", real, "None", &A::decoupled_min_lr},
    {"--lr-decay-style", text, "linear", &A::lr_decay_style,
     "constant linear cosine inverse-square-root WSD"},
    {"--lr-wsd-decay-style", text, "exponential", &A::lr_wsd_decay_style,
     "exponential linear cosine minus_sqrt 1-sqrt"},
    {"--lr-decay-iters", integer, "None", &A::lr_decay_iters, "1.."},
    {"--lr-decay-samples", integer, "None", &A::lr_decay_samples, "1.."},
    {"--lr-wsd-decay-iters", integer, "None", &A::lr_wsd_decay_iters, "1.."},
    {"--lr-wsd-decay-samples", integer, "None", &A::lr_wsd_decay_samples, "1.."},
    {"--lr-warmup-fraction", real, "None", &A::lr_warmup_fraction},
    {"--lr-warmup-iters", integer, "0", &A::lr_warmup_iters, "0.."},
    {"--lr-warmup-samples", integer, "0", &A::lr_warmup_samples, "0.."},
    {"--lr-warmup-init", real, "0.0", &A::lr_warmup_init},
    {"--override-opt_param-scheduler --override-opt-param-scheduler", flag, "False",
     &A::override_opt_param_scheduler},
    {"--use-checkpoint-opt_param-scheduler --use-checkpoint-opt-param-scheduler", flag, "False",
     &A::use_checkpoint_opt_param_scheduler},
    // Regularisation
    {"--attention-dropout", real, "0.1", &A::attention_dropout},
    {"--hidden-dropout", real, "0.1", &A::hidden_dropout},
    {"--weight-decay", real, "0.01", &A::weight_decay},
    {"--start-weight-decay", real, "None", &A::start_weight_decay},
    {"--end-weight-decay", real, "None", &A::end_weight_decay},
    {"--weight-decay-incr-style", text, "constant", &A::weight_decay_incr_style,
     "constant linear cosine"},
    {"--apply-wd-to-qk-layernorm", flag, "False", &A::apply_wd_to_qk_layernorm},
    // Precision
    {"--fp16", flag, "False", &A::fp16},
    {"--bf16", flag, "False", &A::bf16},
    {"--loss-scale", real, "None", &A::loss_scale},
    {"--initial-loss-scale", real, "4294967296", &A::initial_loss_scale},
    {"--min-loss-scale", real, "1.0", &A::min_loss_scale},
    {"--loss-scale-window", real, "1000", &A::loss_scale_window},
    {"--hysteresis", integer, "2", &A::hysteresis, "1.."},
    {"--attention-softmax-in-fp32", flag, "False", &A::attention_softmax_in_fp32},
    {"--apply-query-key-layer-scaling", flag, "False", &A::apply_query_key_layer_scaling},
};

}  // namespace

std::span<const ArgumentRow> training_rows() { return kTrainingRows; }

}  // namespace ferry
