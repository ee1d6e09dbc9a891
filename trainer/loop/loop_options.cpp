#include "trainer/loop/loop_options.h"

#include <fmt/format.h>

#include "ckpt/base/error.h"
#include "trainer/arguments/complete.h"
#include "trainer/schedule/batch_size.h"
#include "trainer/schedule/exit.h"
#include "trainer/schedule/learning_rate.h"

namespace ferry {

namespace {

// With --train-iters, the schedule's lengths are iterations, each counted as --global-batch-size
// samples as in Megatron-LM, whatever their batch sizes are.
struct CountedRun {
  explicit CountedRun(const TrainArguments& a)
      : sizes(batch_sizes(a)),
        schedule(schedule_of(a)),
        iterations(a.train_iters.value_or(0)),
        batch(a.global_batch_size.value_or(1)),
        samples(samples_for(sizes, iterations)),
        is_counted_apart(!a.skip_train && a.train_iters && samples != iterations * batch) {}

  // "the schedule counts ..., but ..."
  std::string text() const {
    const double last = learning_rate(schedule, samples);
    std::string end = fmt::format("the final learning rate is {:.6E}", last);
    if (samples > schedule.decay) {
      BatchSizes whole = sizes;
      whole.keep_rest = true;
      end += fmt::format(", reached at iteration {}", iterations_for(whole, schedule.decay) + 1);
    }
    return fmt::format(
        "the schedule counts each iteration as {} samples, so it warms up over {} and decays until "
        "sample {}, but batch sizes change and {} iterations take {} samples: {} (--min-lr is "
        "{:.6E}); give --train-samples {} instead, with --lr-decay-samples and --lr-warmup-samples",
        batch, schedule.warmup, schedule.decay, iterations, samples, end, schedule.min_lr, samples);
  }

  BatchSizes sizes;
  Schedule schedule;
  int64_t iterations, batch, samples;
  bool is_counted_apart;
};

bool depends_on_samples(const Schedule& schedule) {
  return schedule.style != "constant" || schedule.warmup > 0 ||
         schedule.weight_decay_style != "constant";
}

}  // namespace

std::vector<std::string> loop_warnings(const TrainArguments& a) {
  const CountedRun run(a);
  if (!run.is_counted_apart || !depends_on_samples(run.schedule)) return {};
  return {fmt::format("--train-iters: {}", run.text())};
}

void check_loop(const TrainArguments& a) {
  schedule_of(a);
  const bool has_phases = !phase_transitions(a.phase_transition_iterations).empty();
  const bool batches_change = !a.rampup_batch_size.empty() || !a.step_batch_size_schedule.empty() ||
                              a.decrease_batch_size_if_needed;
  if (has_phases && batches_change) {
    fail(ErrorKind::unsupported,
         "--phase-transition-iterations assumes that all iterations take --global-batch-size "
         "samples: leave out --rampup-batch-size, --step-batch-size-schedule and "
         "--decrease-batch-size-if-needed");
  }
  const BatchSizes sizes = batch_sizes(a);
  const int64_t iterations = a.train_iters     ? *a.train_iters
                             : a.train_samples ? iterations_for(sizes, *a.train_samples)
                                               : 1;
  const bool has_virtual_stages = a.virtual_pipeline_model_parallel_size.value_or(1) > 1;
  if (a.skip_train) return;
  check_batches(sizes, iterations, has_virtual_stages ? a.pipeline_model_parallel_size : 1);
  if (a.rampup_batch_size.empty() || !a.train_iters) return;
  fail(ErrorKind::invalid,
       "--rampup-batch-size cannot be used with --train-iters (Megatron-LM rejects it, too): {}",
       CountedRun(a).text());
}

OptimizerOptions optimizer_options(const TrainArguments& arguments) {
  OptimizerOptions options;
  options.kind = arguments.optimizer == "sgd"        ? OptimizerOptions::Kind::sgd
                 : arguments.optimizer == "ademamix" ? OptimizerOptions::Kind::ademamix
                                                     : OptimizerOptions::Kind::adam;
  options.beta1 = arguments.adam_beta1;
  options.beta2 = arguments.adam_beta2;
  options.epsilon = arguments.adam_eps;
  options.momentum = arguments.sgd_momentum;
  options.beta3 = arguments.ademamix_beta3;
  options.alpha = arguments.ademamix_alpha;
  options.beta3_warmup = arguments.ademamix_beta3_warmup;
  options.alpha_warmup = arguments.ademamix_alpha_warmup;
  if (arguments.decoupled_lr) {
    options.input_and_output = {*arguments.decoupled_lr,
                                arguments.decoupled_min_lr.value_or(arguments.min_lr)};
  }
  options.clip = arguments.clip_grad;
  return options;
}

ModelStateOptions optimizer_state_options(const TrainArguments& arguments) {
  const auto type_of = [](std::string_view dtype) {
    return dtype == "torch.bfloat16" ? kernels::Type::bf16 : kernels::Type::f32;
  };
  ModelStateOptions options;
  options.distributed_optimizer = arguments.use_distributed_optimizer;
  options.decays_qk_norms = arguments.apply_wd_to_qk_layernorm;
  options.gradient_type = type_of(arguments.main_grads_dtype);
  options.kinds = optimizer_options(arguments).state_kinds();
  options.remainders = keeps_remainders(arguments);
  if (arguments.use_precision_aware_optimizer) {
    options.kind_types = {type_of(arguments.exp_avg_dtype), type_of(arguments.exp_avg_sq_dtype)};
  }
  return options;
}

}  // namespace ferry
