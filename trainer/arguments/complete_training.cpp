#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <string_view>

#include "trainer/arguments/argument_value.h"
#include "trainer/arguments/checks.h"
#include "trainer/arguments/complete.h"

namespace ferry {
namespace {

using Notes = std::vector<std::string>;

constexpr std::string_view kFloat32 = "torch.float32";

void complete_batch(TrainArguments& a, Notes& notes) {
  check_fits(a.micro_batch_size.has_value(),
             "--micro-batch-size is missing: samples in one forward pass");
  const int64_t least = checked_multiply(*a.micro_batch_size, a.data_parallel_size, "a batch");
  check_one_of({{"--step-batch-size-schedule", !a.step_batch_size_schedule.empty()},
                {"--global-batch-size", a.is_global_batch_size_explicit}});
  check_one_of({{"--step-batch-size-schedule", !a.step_batch_size_schedule.empty()},
                {"--rampup-batch-size", !a.rampup_batch_size.empty()}});
  check_fits(a.rampup_batch_size.empty() || a.rampup_batch_size.size() == 3,
             "--rampup-batch-size has {} values: give start, increment and samples",
             a.rampup_batch_size.size());
  if (!a.rampup_batch_size.empty()) {
    notes.push_back(
        "--rampup-batch-size: batches grow as in Megatron-LM until April 2026; later releases "
        "ignore the argument and use --step-batch-size-schedule instead");
  }
  if (!a.global_batch_size) {
    a.global_batch_size = least;
    notes.push_back(fmt::format("setting global batch size to {}", least));
  }
  check_size("--global-batch-size", *a.global_batch_size);
  const bool varies = !a.step_batch_size_schedule.empty() || a.decrease_batch_size_if_needed;
  check_fits(varies || *a.global_batch_size % least == 0,
             "--global-batch-size {} is not a multiple of --micro-batch-size {} x {} data parallel "
             "ranks: {} is the next",
             *a.global_batch_size, *a.micro_batch_size, a.data_parallel_size,
             (*a.global_batch_size / least + 1) * least);
  if (!a.eval_global_batch_size) a.eval_global_batch_size = a.global_batch_size;
  if (!a.eval_micro_batch_size) a.eval_micro_batch_size = a.micro_batch_size;
  const int64_t eval = checked_multiply(*a.eval_micro_batch_size, a.data_parallel_size, "a batch");
  check_fits(varies || *a.eval_global_batch_size % eval == 0,
             "--eval-global-batch-size {} is not a multiple of --eval-micro-batch-size {} x {} "
             "data parallel ranks",
             *a.eval_global_batch_size, *a.eval_micro_batch_size, a.data_parallel_size);
  check_fits(a.dataloader_type != "cyclic" || *a.eval_micro_batch_size == *a.micro_batch_size,
             "--eval-micro-batch-size {} with --dataloader-type cyclic: evaluations use "
             "--micro-batch-size {}, and another size would select other samples",
             *a.eval_micro_batch_size, *a.micro_batch_size);
  // Evaluation uses the micro-batch size of training: the mean over tokens is the same.
  const int64_t rest = *a.eval_global_batch_size % least;
  check_fits(varies ? *a.eval_global_batch_size >= least : rest == 0,
             "--eval-global-batch-size {} is not a multiple of --micro-batch-size {} x {} data "
             "parallel ranks: {} is the next",
             *a.eval_global_batch_size, *a.micro_batch_size, a.data_parallel_size,
             *a.eval_global_batch_size - rest + least);
}

// Tokens of a micro-batch are counted in 32 bits, its activations in 63.
void check_pass(const TrainArguments& a) {
  const int64_t tokens = checked_multiply(*a.micro_batch_size, *a.seq_length, "tokens of a pass");
  check_fits(tokens <= INT32_MAX,
             "--micro-batch-size {} x --seq-length {}: a pass takes at most {} tokens",
             *a.micro_batch_size, *a.seq_length, INT32_MAX);
  const int64_t widest = std::max(*a.hidden_size, *a.ffn_hidden_size);
  checked_multiply(tokens, checked_multiply(widest, int64_t{64}, "a token"), "bytes of a pass");
}

// All lengths of a run are given in iterations, or all in samples.
void check_length(const TrainArguments& a) {
  if (a.skip_train) return;
  check_one_of({{"--train-iters", a.train_iters.has_value()},
                {"--train-samples", a.train_samples.has_value()}});
  check_fits(a.train_iters || a.train_samples,
             "--train-iters or --train-samples is missing: how long to train");
  const bool by_samples = a.train_samples.has_value();
  const std::string_view ours = by_samples ? "--train-samples" : "--train-iters";
  const std::pair<std::string_view, bool> by_iteration[] = {
      {"--lr-decay-iters", a.lr_decay_iters.has_value()},
      {"--lr-warmup-iters", a.lr_warmup_iters != 0},
      {"--lr-wsd-decay-iters", a.lr_wsd_decay_iters.has_value()}};
  const std::pair<std::string_view, bool> by_sample[] = {
      {"--lr-decay-samples", a.lr_decay_samples.has_value()},
      {"--lr-warmup-samples", a.lr_warmup_samples != 0},
      {"--lr-wsd-decay-samples", a.lr_wsd_decay_samples.has_value()}};
  for (size_t i = 0; i < std::size(by_sample); ++i) {
    const auto& [flag, given] = by_samples ? by_iteration[i] : by_sample[i];
    check_fits(!given, "{} with {}: give {}", flag, ours,
               (by_samples ? by_sample : by_iteration)[i].first);
  }
  check_fits(!a.lr_warmup_fraction || (a.lr_warmup_iters == 0 && a.lr_warmup_samples == 0),
             "--lr-warmup-fraction excludes --lr-warmup-iters and --lr-warmup-samples");
}

// Megatron-LM silently keeps the rate constant. If batch sizes change, the loop's warning has the
// figures.
void note_short_decay(const TrainArguments& a, Notes& notes) {
  const bool by_samples = a.train_samples.has_value();
  const auto run = by_samples ? a.train_samples : a.train_iters;
  const auto decay = by_samples ? a.lr_decay_samples : a.lr_decay_iters;
  const bool batches_change =
      !by_samples && (!a.step_batch_size_schedule.empty() || !a.rampup_batch_size.empty() ||
                      a.decrease_batch_size_if_needed);
  if (a.skip_train || batches_change || a.use_checkpoint_opt_param_scheduler || !run || !decay ||
      *decay >= *run || a.lr_decay_style == "constant" || a.lr == a.min_lr) {
    return;
  }
  const std::string_view unit = by_samples ? "samples" : "iterations";
  const std::string_view ending = by_samples ? "samples" : "iters";
  notes.push_back(fmt::format(
      "--lr-decay-{0} {1} ends before --train-{0} {2} do: the learning rate stays at --min-lr {3} "
      "for the last {4} {5}, {6:.0f}% of the run",
      ending, *decay, *run, a.min_lr, *run - *decay, unit,
      100 * static_cast<double>(*run - *decay) / static_cast<double>(*run)));
}

void complete_schedule(TrainArguments& a, Notes& notes) {
  if (a.lr_warmup_fraction) {
    check_fits(*a.lr_warmup_fraction >= 0 && *a.lr_warmup_fraction < 1,
               "--lr-warmup-fraction {}: must be between 0 and 1", *a.lr_warmup_fraction);
  }
  check_fits(a.lr || a.skip_train, "--lr is missing");
  if (a.lr) {
    check_fits(*a.lr >= 0, "--lr {}: must be 0 or a positive number", *a.lr);
    check_fits(a.min_lr >= 0 && a.min_lr <= *a.lr, "--min-lr {} is not between 0 and --lr {}",
               a.min_lr, *a.lr);
    check_fits(a.lr_warmup_init >= 0 && a.lr_warmup_init <= *a.lr,
               "--lr-warmup-init {} is not between 0 and --lr {}", a.lr_warmup_init, *a.lr);
  }
  const bool wsd = a.lr_decay_style == "WSD" && !a.skip_train;
  check_fits(!wsd || a.lr_wsd_decay_iters || a.lr_wsd_decay_samples,
             "--lr-decay-style WSD: give --lr-wsd-decay-{}, the length of the final decay",
             a.train_samples ? "samples" : "iters");
  check_one_of({{"--override-opt-param-scheduler", a.override_opt_param_scheduler},
                {"--use-checkpoint-opt-param-scheduler", a.use_checkpoint_opt_param_scheduler}});
  note_short_decay(a, notes);
}

void complete_weight_decay(TrainArguments& a) {
  if (!a.no_weight_decay_cond_type.empty()) a.apply_wd_to_qk_layernorm = true;
  a.no_weight_decay_cond_type.clear();
  if (a.weight_decay_incr_style == "constant") {
    const bool same = a.start_weight_decay.value_or(a.weight_decay) == a.weight_decay &&
                      a.end_weight_decay.value_or(a.weight_decay) == a.weight_decay;
    check_fits(
        same,
        "--start-weight-decay and --end-weight-decay are for --weight-decay-incr-style linear "
        "or cosine");
    a.start_weight_decay = a.end_weight_decay = a.weight_decay;
  }
  check_fits(
      a.start_weight_decay && a.end_weight_decay,
      "--weight-decay-incr-style {} goes from --start-weight-decay to --end-weight-decay: give "
      "both",
      a.weight_decay_incr_style);
  check_fits(*a.start_weight_decay >= 0 && *a.end_weight_decay >= *a.start_weight_decay,
             "weight decay from {} to {} (--weight-decay, or --start-weight-decay and "
             "--end-weight-decay): it must not be negative or decrease",
             *a.start_weight_decay, *a.end_weight_decay);
}

void check_main_dtypes(const TrainArguments& a) {
  const bool has_bf16_gradients = a.main_grads_dtype != kFloat32;
  check_fits(!has_bf16_gradients || a.bf16,
             "--main-grads-dtype bf16 is for --bf16: leave it out, or train in bf16");
  check_fits(!has_bf16_gradients || !a.accumulate_allreduce_grads_in_fp32,
             "--main-grads-dtype bf16 and --accumulate-allreduce-grads-in-fp32 exclude each other: "
             "leave one out");
  if (a.main_params_dtype == kFloat32) return;
  fail(ErrorKind::unsupported,
       "--main-params-dtype fp16 is not supported: with --bf16, fp32 takes no more memory, 16 bits "
       "in addition to the model's own, and is exact. Leave it out");
}

void check_moments(std::string_view flag, const std::string& dtype) {
  const std::string_view word = dtype_word(dtype);
  if (word == "fp32" || word == "bf16") return;
  fail(ErrorKind::unsupported,
       "{} {} is not supported: bf16 takes 2 bytes per parameter and, with the range of fp32, "
       "needs no scales; fp32 takes 4",
       flag, word);
}

void check_precision_aware(const TrainArguments& a) {
  const std::pair<std::string_view, std::string_view> dtypes[] = {
      {"--main-grads-dtype", a.main_grads_dtype},
      {"--main-params-dtype", a.main_params_dtype},
      {"--exp-avg-dtype", a.exp_avg_dtype},
      {"--exp-avg-sq-dtype", a.exp_avg_sq_dtype}};
  for (const auto& [flag, dtype] : dtypes) {
    check_fits(a.use_precision_aware_optimizer || dtype == kFloat32,
               "{} {} needs --use-precision-aware-optimizer", flag, dtype_word(dtype));
  }
  if (!a.use_precision_aware_optimizer) return;
  check_fits(a.optimizer == "adam",
             "--use-precision-aware-optimizer is for --optimizer adam, not {}", a.optimizer);
  check_fits(a.use_distributed_optimizer,
             "--use-precision-aware-optimizer needs --use-distributed-optimizer, with one data "
             "parallel rank, too");
  check_main_dtypes(a);
  check_moments("--exp-avg-dtype", a.exp_avg_dtype);
  check_moments("--exp-avg-sq-dtype", a.exp_avg_sq_dtype);
}

void complete_precision(TrainArguments& a, Notes& notes) {
  check_one_of({{"--fp16", a.fp16}, {"--bf16", a.bf16}});
  a.params_dtype = a.fp16 ? "torch.float16" : a.bf16 ? "torch.bfloat16" : "torch.float32";
  check_precision_aware(a);
  const bool dynamic = a.fp16 && a.loss_scale.value_or(0) == 0;
  if (dynamic) a.check_for_nan_in_loss_and_grad = false;  // they configure the scaler
  if (a.bf16) {
    if (a.grad_reduce_in_bf16) {
      a.accumulate_allreduce_grads_in_fp32 = false;
    } else if (!a.accumulate_allreduce_grads_in_fp32 && a.main_grads_dtype == kFloat32) {
      a.accumulate_allreduce_grads_in_fp32 = true;
      notes.push_back("accumulate and all-reduce gradients in fp32 for bfloat16 data type.");
    }
  }
  check_fits(a.loss_scale.value_or(0) >= 0, "--loss-scale {}: must be a positive number",
             a.loss_scale.value_or(0));
  if (!dynamic) return;
  check_fits(a.min_loss_scale > 0 && a.min_loss_scale <= a.initial_loss_scale,
             "--min-loss-scale {} is not between 0 and --initial-loss-scale {}", a.min_loss_scale,
             a.initial_loss_scale);
  check_fits(a.loss_scale_window >= 1 && std::floor(a.loss_scale_window) == a.loss_scale_window,
             "--loss-scale-window {}: must be a whole number of iterations", a.loss_scale_window);
}

// Layers that stay in bf16: at either end at most those of one pipeline stage.
void check_bf16_layers(const TrainArguments& a) {
  if (!a.first_last_layers_bf16) return;
  check_fits(a.fp8_recipe != "delayed",
             "--first-last-layers-bf16 is for --fp8-recipe tensorwise: with delayed scaling all "
             "layers are in FP8");
  const int64_t most = *a.num_layers / a.pipeline_model_parallel_size;
  check_size("--num-layers-at-start-in-bf16", a.num_layers_at_start_in_bf16, 0, most);
  check_size("--num-layers-at-end-in-bf16", a.num_layers_at_end_in_bf16, 0, most);
}

void complete_fp8(const TrainArguments& a) {
  if (a.fp8.empty()) return;
  check_fits(a.bf16, "--fp8-format {} needs --bf16{}", a.fp8, a.fp16 ? " instead of --fp16" : "");
  if (a.fp8_recipe != "delayed" && a.fp8_recipe != "tensorwise") {
    fail(ErrorKind::unsupported,
         "--fp8-recipe {}: supported are tensorwise and delayed, with one scale per tensor",
         a.fp8_recipe);
  }
  check_size("--fp8-margin", a.fp8_margin, -64, 64);
  check_bf16_layers(a);
}

void check_optimizer(const TrainArguments& a) {
  for (const auto& [flag, beta] :
       {std::pair{"--adam-beta1", a.adam_beta1}, std::pair{"--adam-beta2", a.adam_beta2},
        std::pair{"--ademamix-beta3", a.ademamix_beta3},
        std::pair{"--sgd-momentum", a.sgd_momentum}}) {
    check_fits(beta >= 0 && beta < 1, "{} {}: must be between 0 and 1", flag, beta);
  }
  check_fits(a.adam_eps >= 0, "--adam-eps {}: must be a positive number", a.adam_eps);
  check_fits(a.clip_grad >= 0, "--clip-grad {}: 0 for none, or a positive number", a.clip_grad);
}

void check_recompute_modules(const TrainArguments& a, Notes& notes) {
  constexpr std::array<std::string_view, 7> kModules{
      "core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "moe_act", "shared_experts"};
  check_fits(a.recompute_method.empty() && !a.recompute_num_layers,
             "--recompute-method and --recompute-num-layers are for --recompute-granularity full");
  for (const std::string& module : a.recompute_modules) {
    check_fits(std::ranges::count(kModules, module) > 0, "--recompute-modules {}: supported are {}",
               module, fmt::join(kModules, ", "));
    check_fits(module != "mla_up_proj" || a.multi_latent_attention,
               "--recompute-modules mla_up_proj is for --multi-latent-attention");
  }
  // Megatron-LM's default when none are given.
  if (std::ranges::all_of(a.recompute_modules, [](auto& m) { return m == "core_attn"; })) {
    notes.push_back(
        "--recompute-granularity selective: core_attn alone saves nothing, because attention never "
        "keeps its scores; give other --recompute-modules");
  }
}

void complete_recompute(TrainArguments& a, Notes& notes) {
  if (a.recompute_activations) a.recompute_granularity = "selective";
  if (a.recompute_granularity == "selective") check_recompute_modules(a, notes);
  if (a.recompute_granularity != "full") return;
  check_fits(
      !a.recompute_method.empty(),
      "--recompute-granularity full: give --recompute-method uniform or block, which layers");
  check_fits(a.recompute_num_layers.has_value(),
             "--recompute-method {}: give --recompute-num-layers, how many", a.recompute_method);
  check_size("--recompute-num-layers", *a.recompute_num_layers, 1, *a.num_layers);
}

}  // namespace

bool keeps_remainders(const TrainArguments& a) { return a.use_precision_aware_optimizer && a.bf16; }

void complete_training(TrainArguments& a, Notes& notes) {
  complete_batch(a, notes);
  check_pass(a);
  check_length(a);
  complete_schedule(a, notes);
  complete_weight_decay(a);
  complete_precision(a, notes);
  complete_fp8(a);
  check_optimizer(a);
  complete_recompute(a, notes);
}

}  // namespace ferry
