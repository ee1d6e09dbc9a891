#include "trainer/loop/training_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ckpt/base/error.h"
#include "ckpt/group/group.h"
#include "trainer/loop/loop_options.h"

namespace ferry {

namespace {

[[noreturn]] void fail_not_finite(const RunPosition& position, const char* what) {
  throw SharedError(
      ErrorKind::invalid,
      fmt::format(
          "the {} of iteration {} is not finite; it is not saved (the last checkpoint of this "
          "process is of iteration {}); check the samples from {} on, skip iterations "
          "(--iterations-to-skip), or continue anyway (--no-check-for-nan-in-loss-and-grad)",
          what, position.progress.iteration + 1, position.last_saved, position.consumed));
}

bool is_profiled_rank(const TrainArguments& arguments, int rank) {
  const auto& ranks = arguments.profile_ranks;
  return arguments.profile && (ranks.empty() || std::ranges::find(ranks, rank) != ranks.end());
}

}  // namespace

TrainingStep::TrainingStep(const TrainArguments& arguments, TrainedModel& model, RunLog& log,
                           CheckpointSink& sink, int rank)
    : arguments_(arguments),
      model_(model),
      log_(log),
      sink_(sink),
      kernels_(*model.device().kernels),
      optimizer_(model.state(), model.grid(), kernels_, optimizer_options(arguments)),
      is_first_rank_(rank == 0),
      is_profiled_(is_profiled_rank(arguments, rank)) {
  kernels_.time_operations(arguments.timing_log_level >= 2 && is_first_rank_);
  kernels_.name_operations(arguments.nvtx_ranges);
}

// --profile: starts and stops capturing of a profiler that waits for the program.
void TrainingStep::run(RunPosition& position, const IterationBatch& batch, int64_t iterations) {
  const int64_t done = position.progress.iteration;
  if (is_profiled_ && done == arguments_.profile_step_start) {
    kernels_.name_operations(true);
    kernels_.capture(true);
  }
  kernels_.begin_range(fmt::format("iteration {}", done + 1).c_str());
  take(position, batch, iterations);
  kernels_.end_range();
  if (is_profiled_ && done + 1 == arguments_.profile_step_end) {
    kernels_.capture(false);
    kernels_.name_operations(arguments_.nvtx_ranges);
  }
}

void TrainingStep::take(RunPosition& position, const IterationBatch& batch, int64_t iterations) {
  RunProgress& progress = position.progress;
  const StepSamples samples{position.consumed, batch};
  model_.state().begin_gradients();
  model_.begin_step(progress.iteration);
  kernels_.begin_range("forward and backward");
  timed("forward-backward", [&] { model_.train(samples, progress.scaler.scale); });
  kernels_.end_range();
  timed("all-grads-sync", [&] { model_.state().reduce_gradients(); });
  sink_.wait_for_copy();
  const StepRates step_rates = rates(position, model_.gradient_divisor());
  kernels_.begin_range("optimizer");
  timed("optimizer", [&] { optimizer_.step(step_rates); });
  kernels_.end_range();
  // The whole step has been queued: now wait for it.
  const std::vector<LossSum> losses = model_.losses();
  check_finite(position, losses.front());
  const StepResult result = optimizer_.result();
  check_finite(position, result);
  update(progress.scaler, result.is_skipped);
  if (!result.is_skipped) {
    ++progress.optimizer_steps;
    progress.schedule_samples += batch.running;
  }
  ++progress.iteration;
  position.consumed += batch.running;
  position.skipped += batch.global - batch.running;
  const double operations = model_.operations(batch.running);
  progress.operations += operations;
  TrainingLine line = line_of(position, samples, losses, result);
  line.train_iterations = iterations;
  log_.add(std::move(line), operations, result.is_skipped);
  log_operation_times(progress.iteration);
  for (const int64_t iteration : sink_.take_committed()) log_.add_commit(iteration);
}

StepRates TrainingStep::rates(const RunPosition& position, double divisor) const {
  const RunProgress& progress = position.progress;
  const Schedule& schedule = position.schedule;
  StepRates rates{.number = progress.optimizer_steps + 1,
                  .learning_rate = learning_rate(schedule, progress.schedule_samples),
                  .input_and_output_rate = {},
                  .weight_decay = weight_decay(schedule, progress.schedule_samples),
                  .loss_scale = progress.scaler.scale * divisor};
  if (const auto own = optimizer_options(arguments_).input_and_output) {
    rates.input_and_output_rate =
        learning_rate(schedule, progress.schedule_samples, own->max, own->min);
  }
  return rates;
}

TrainingLine TrainingStep::line_of(const RunPosition& position, const StepSamples& samples,
                                   const std::vector<LossSum>& losses, const StepResult& result) {
  const RunProgress& progress = position.progress;
  TrainingLine line;
  for (const LossSum& loss : losses) line.losses.emplace_back(loss.name, loss.mean());
  for (auto& loss : model_.end_step(samples)) line.losses.push_back(std::move(loss));
  line.iteration = progress.iteration;
  line.consumed_samples = position.consumed;
  line.skipped_samples = position.skipped;
  line.learning_rate =
      static_cast<float>(learning_rate(position.schedule, progress.schedule_samples));
  line.batch_size = samples.batch.running;
  line.loss_scale = progress.scaler.scale;
  if (!result.is_skipped) line.gradient_norm = result.norm;
  if (arguments_.log_num_zeros_in_grad && !result.is_skipped) {
    line.zeros = static_cast<double>(optimizer_.count_zeros());
  }
  if (arguments_.log_params_norm) line.parameter_norm = optimizer_.parameter_norm();
  return line;
}

// A running timer measures the device's work, not the queueing.
template <typename Act>
void TrainingStep::timed(const char* name, const Act& act) {
  constexpr int kLevel = 1;
  const auto wait_if_timed = [&] {
    if (arguments_.timing_log_level >= kLevel) kernels_.wait();
  };
  wait_if_timed();
  const TimerScope timer(log_.timers(), name, kLevel);
  act();
  wait_if_timed();
}

// With --timing-log-level 2, if the device measures operations.
void TrainingStep::log_operation_times(int64_t iteration) {
  const bool is_due = arguments_.timing_log_level >= 2 && iteration % arguments_.log_interval == 0;
  if (!is_due || !is_first_rank_) return;
  kernels_.wait();
  for (const kernels::OperationTime& time : kernels_.take_operation_times()) {
    log_.write(fmt::format("    {:10.2f} ms, {:6} times: {}\n", 1000 * time.seconds, time.count,
                           time.name));
  }
}

// All ranks have the sums over all ranks.
void TrainingStep::check_finite(const RunPosition& position, const LossSum& loss) const {
  if (!arguments_.check_for_nan_in_loss_and_grad || std::isfinite(loss.sum)) return;
  fail_not_finite(position, "loss");
}

// A dynamic loss scale, for which the check is off, shrinks on overflow.
void TrainingStep::check_finite(const RunPosition& position, const StepResult& result) const {
  if (!arguments_.check_for_nan_in_loss_and_grad || !result.is_skipped) return;
  fail_not_finite(position, "gradient");
}

}  // namespace ferry
