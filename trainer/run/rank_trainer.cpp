#include "trainer/run/rank_trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/group/together.h"
#include "trainer/arguments/namespace.h"
#include "trainer/checkpoint/run_checkpoint.h"
#include "trainer/data/batch_ahead.h"
#include "trainer/data/open_datasets.h"
#include "trainer/data/sampler.h"
#include "trainer/loop/batch_size.h"
#include "trainer/loop/flops.h"
#include "trainer/model/initial_weights.h"
#include "trainer/run/memory_plan.h"
#include "trainer/run/rank_model.h"
#include "trainer/run/run_log.h"
#include "trainer/run/saver.h"

namespace ferry {
namespace {

class RankTrainer {
 public:
  RankTrainer(const TrainArguments& arguments, const RankSetup& setup)
      : arguments_(arguments),
        setup_(setup),
        group_(*setup.group),
        source_(open_source(setup.files, arguments, group_)),
        model_(model_of(arguments, source_.get())),
        log_(arguments, *setup.files, group_, setup.print),
        datasets_(begin_with_data()),
        device_(setup.open_device ? setup.open_device() : host_device(setup.links, setup.threads)),
        rank_(arguments, model_, group_.rank(), device_,
              source_ ? source_->checkpoint.path : std::string()),
        optimizer_(rank_.memory, rank_.grid, *device_.kernels, optimizer_options(arguments)),
        schedule_(schedule_of(arguments)),
        batches_(batch_sizes(arguments)),
        saver_(arguments, setup.files, group_, device_.stager,
               [this](std::string_view text) { log_.tell(text); }) {
    device_.kernels->time_operations(arguments.timing_log_level >= 2 && group_.rank() == 0);
    device_.kernels->name_operations(arguments.nvtx_ranges);
  }

  // From the first bytes that ranks give each other on: until it has returned, or thrown, the
  // memory that they lie in is there.
  void run() {
    begin();
    prepare_sampler();
    log_.begin(progress_.iteration, progress_.operations);
    train();
    if (device_.peak_bytes && group_.rank() == 0) {
      log_.tell(fmt::format("peak memory of rank 0's GPU: {:.3f} GiB\n",
                            static_cast<double>(device_.peak_bytes()) / (int64_t{1} << 30)));
    }
  }

 private:
  static int64_t now() { return now_microseconds(); }

  // Until all iterations are done, or the run is told to end.
  void train() {
    bool is_over = false;
    if (arguments_.skip_train) {
      log_.tell("skipping training (--skip-train is on) ...\n");
    } else {
      log_.tell(datetime_line("before the start of training step", date_and_time(now())));
      while (!is_over && progress_.iteration < iterations_) is_over = iterate();
    }
    if (is_over) {
      finish_saves();
      return;
    }
    log_.tell(datetime_line("after training is done", date_and_time(now())));
    if (!arguments_.skip_train && last_saved_ != progress_.iteration) save(SaveKind::persistent);
    finish_saves();
    const std::string at = fmt::format("iteration {} on ", progress_.iteration);
    evaluate(datasets_.valid.get(), consumed_valid_, at + "validation set", true);
    int64_t consumed_test = 0;
    evaluate(datasets_.test.get(), consumed_test, at + "test set", true);
  }

  // Told, found and ordered before any of the model's memory is taken.
  PerSplit<std::shared_ptr<const Dataset>> begin_with_data() {
    log_.tell_arguments();
    return open_data();
  }

  // The state that the run begins with.
  void begin() {
    progress_.scaler = loss_scaler(arguments_);
    if (source_) {
      load();
    } else {
      initialise(*device_.kernels, rank_.memory.model_regions(), model_.architecture,
                 arguments_.seed);
      rank_.memory.copy_to_masters();
    }
    if (arguments_.override_ckpt_iteration) {
      progress_.iteration = *arguments_.override_ckpt_iteration;
      consumed_ = progress_.iteration * arguments_.global_batch_size.value_or(1);
      skipped_samples_ = 0;
    }
    saved_.start_iteration = last_saved_ = progress_.iteration;
    saved_.start_operations = progress_.operations;
    iterations_ = arguments_.train_iters.value_or(0);
    if (arguments_.train_samples) iterations_ = iterations_for(batches_, *arguments_.train_samples);
    saver_.prepare(regions_to_save(arguments_, rank_.memory));
    const GridPlace& place = rank_.grid.place();
    if (place.data == 0 && place.context == 0) {
      setup_.print(parameters_line(place.tensor, place.stage, rank_.memory.parameter_count()));
    }
    if (group_.rank() == 0) {
      log_.tell(
          plan_text(arguments_, model_, memory_plan(arguments_, model_, device_.kernels->kind())));
    }
  }

  void load() {
    const RunState& state = source_->state;
    const bool without_optimizer =
        arguments_.no_load_optim || source_->weights_only || state.param_groups.empty();
    // What does not fit is told before all those bytes are read.
    if (!source_->weights_only) {
      progress_ = read_progress_of(state, arguments_, schedule_, progress_);
      const ConsumedSamples consumed = read_consumed_samples(state.args.value);
      consumed_ = consumed.train.value_or(0);
      skipped_samples_ = consumed.skipped.value_or(0);
      consumed_valid_ = consumed.valid.value_or(0);
    }
    log_.tell(fmt::format(" loading checkpoint from {} at iteration {}\n", source_->checkpoint.path,
                          progress_.iteration));
    load_tensors(source_->checkpoint, state, device_.stager.get(), rank_.memory,
                 without_optimizer
                     ? (arguments_.load_main_params_from_ckpt ? Load::main_weights : Load::weights)
                     : Load::all);
    const GridSizes& sizes = rank_.grid.sizes();
    log_.tell(fmt::format(
        "  successfully loaded checkpoint from {} [ t 1/{}, gtp_remat 1/1, p 1/{} ] at iteration "
        "{}\n",
        source_->checkpoint.path, sizes.tensor, sizes.pipeline, progress_.iteration));
    // Until here nobody may remove it, as some rank may still read.
    group_.barrier();
    source_.reset();
  }

  // One rank builds what is not in the cache yet, then the others find it there.
  PerSplit<std::shared_ptr<const Dataset>> open_data() const {
    const DataOptions options = data_options(arguments_);
    from_first_together(group_, [&] {
      open_datasets(setup_.files, options);
      return std::string();
    });
    return open_datasets(setup_.files, options);
  }

  void prepare_sampler() {
    const bool is_cyclic = arguments_.dataloader_type == "cyclic";
    if (!datasets_.train || arguments_.skip_train) return;
    sampler_.emplace(sampler_options(arguments_,
                                     is_cyclic ? SampleOrder::cyclic : SampleOrder::single,
                                     datasets_.train->size()));
  }

  // True when the run is to end.
  bool iterate() {
    const auto& skipped = arguments_.iterations_to_skip;
    if (std::find(skipped.begin(), skipped.end(), progress_.iteration) != skipped.end()) {
      skip();
      return false;
    }
    profiled_step();
    const int64_t iteration = progress_.iteration;
    const bool is_due = arguments_.eval_interval && iteration % *arguments_.eval_interval == 0 &&
                        iteration >= arguments_.start_eval_at_iter.value_or(0);
    log_.pause();
    if (is_due) {
      evaluate(datasets_.valid.get(), consumed_valid_, fmt::format("iteration {}", iteration),
               false);
    }
    const bool is_over = decide();
    log_.go_on();
    return is_over;
  }

  // Takes an iteration's samples, and leaves them.
  void skip() {
    const IterationBatch batch = batch_at(batches_, consumed_);
    ++progress_.iteration;
    consumed_ += batch.running;
    skipped_samples_ += batch.running;
  }

  // --profile: what a profiler that waits for the program's word captures.
  void profiled_step() {
    const auto& ranks = arguments_.profile_ranks;
    const bool is_profiled =
        arguments_.profile &&
        (ranks.empty() || std::find(ranks.begin(), ranks.end(), group_.rank()) != ranks.end());
    kernels::Kernels& kernels = *device_.kernels;
    if (is_profiled && progress_.iteration == arguments_.profile_step_start) {
      kernels.name_operations(true);
      kernels.capture(true);
    }
    kernels.begin_range(fmt::format("iteration {}", progress_.iteration + 1).c_str());
    step();
    kernels.end_range();
    if (is_profiled && progress_.iteration == arguments_.profile_step_end) {
      kernels.capture(false);
      kernels.name_operations(arguments_.nvtx_ranges);
    }
  }

  void step() {
    const IterationBatch batch = batch_at(batches_, consumed_);
    rank_.memory.begin_gradients();
    rank_.pipeline.begin_step(progress_.iteration);
    device_.kernels->begin_range("forward and backward");
    timed("forward-backward", [&] {
      rank_.pipeline.train(batch.micro_batches, progress_.scaler.scale,
                           [&](int64_t number, Batch& micro_batch) {
                             const TimerScope timer(log_.timers(), "batch-generator", 2);
                             const bool is_last = number + 1 == batch.micro_batches;
                             const BatchAhead::Place next{consumed_ + (is_last ? batch.running : 0),
                                                          is_last ? 0 : number + 1};
                             batches_ahead_.take({consumed_, number}, next, micro_batch);
                           });
    });
    device_.kernels->end_range();
    timed("all-grads-sync", [&] { rank_.memory.reduce_gradients(); });
    saver_.wait_for_copy();
    const double divisor =
        arguments_.calculate_per_token_loss ? std::max(rank_.pipeline.tokens(), 1.0) : 1.0;
    StepRates rates{.number = progress_.optimizer_steps + 1,
                    .learning_rate = learning_rate(schedule_, progress_.schedule_samples),
                    .input_and_output_rate = {},
                    .weight_decay = weight_decay(schedule_, progress_.schedule_samples),
                    .loss_scale = progress_.scaler.scale * divisor};
    if (const auto own = optimizer_options(arguments_).input_and_output) {
      rates.input_and_output_rate =
          learning_rate(schedule_, progress_.schedule_samples, own->max, own->min);
    }
    device_.kernels->begin_range("optimizer");
    timed("optimizer", [&] { optimizer_.step(rates); });
    device_.kernels->end_range();
    // All of the step is asked for: now it is waited for.
    const StepLoss loss = rank_.pipeline.losses();
    check_finite(loss);
    const StepResult result = optimizer_.result();
    check_finite(result);
    update(progress_.scaler, result.is_skipped);
    if (!result.is_skipped) {
      ++progress_.optimizer_steps;
      progress_.schedule_samples += batch.running;
    }
    ++progress_.iteration;
    consumed_ += batch.running;
    skipped_samples_ += batch.global - batch.running;
    progress_.operations += floating_point_operations(arguments_, batch.running);
    log_.add(line_of(batch, loss, result), result.is_skipped);
    tell_operation_times();
    for (const int64_t iteration : saver_.take_committed()) log_.add_commit(iteration);
  }

  // Where a timer runs it counts what the device does, and not how fast it is asked.
  template <typename Act>
  void timed(const char* name, const Act& act) {
    constexpr int kLevel = 1;
    const auto settle = [&] {
      if (arguments_.timing_log_level >= kLevel) device_.kernels->wait();
    };
    settle();
    const TimerScope timer(log_.timers(), name, kLevel);
    act();
    settle();
  }

  // With --timing-log-level 2, where the device can tell.
  void tell_operation_times() {
    const bool is_due =
        arguments_.timing_log_level >= 2 && progress_.iteration % arguments_.log_interval == 0;
    if (is_due && group_.rank() == 0) {
      device_.kernels->wait();
      for (const kernels::OperationTime& time : device_.kernels->take_operation_times()) {
        log_.tell(fmt::format("    {:10.2f} ms, {:6} times: {}\n", 1000 * time.seconds, time.count,
                              time.name));
      }
    }
  }

  // All ranks know the sums of all.
  void check_finite(const StepLoss& loss) const {
    if (!arguments_.check_for_nan_in_loss_and_grad || std::isfinite(loss.sum)) return;
    fail_not_finite("loss");
  }
  // In fp16 a gradient may be too large: the loss scale goes down, then.
  void check_finite(const StepResult& result) const {
    const bool may_skip = arguments_.fp16 || !arguments_.check_for_nan_in_loss_and_grad;
    if (result.is_skipped && !may_skip) fail_not_finite("gradient");
  }
  [[noreturn]] void fail_not_finite(const char* what) const {
    throw SharedError(
        ErrorKind::invalid,
        fmt::format("the {} of iteration {} is not finite; nothing is saved of it (the last "
                    "checkpoint of this process is of iteration {}). Look at the samples from {} "
                    "on, leave iterations out (--iterations-to-skip) or go on all the same "
                    "(--no-check-for-nan-in-loss-and-grad)",
                    what, progress_.iteration + 1, last_saved_, consumed_));
  }

  TrainingLine line_of(const IterationBatch& batch, const StepLoss& loss,
                       const StepResult& result) {
    TrainingLine line;
    line.losses = {{"lm loss", loss.sum / std::max(loss.tokens, 1.0)}};
    for (const auto& [name, value] : rank_.pipeline.end_step(batch.micro_batches)) {
      line.losses.emplace_back(name, value);
    }
    line.iteration = progress_.iteration;
    line.train_iterations = iterations_;
    line.consumed_samples = consumed_;
    line.skipped_samples = skipped_samples_;
    line.learning_rate = static_cast<float>(learning_rate(schedule_, progress_.schedule_samples));
    line.batch_size = batch.running;
    line.loss_scale = progress_.scaler.scale;
    if (!result.is_skipped) line.gradient_norm = result.norm;
    if (arguments_.log_num_zeros_in_grad && !result.is_skipped) {
      line.zeros = static_cast<double>(optimizer_.count_zeros());
    }
    if (arguments_.log_params_norm) line.parameter_norm = optimizer_.parameter_norm();
    return line;
  }

  void read(Sampler& sampler, const Dataset& dataset, const BatchAhead::Place& place,
            Batch& batch) const {
    std::vector<int64_t> indices;
    Sample sample;
    sampler.take(place.consumed, place.number, rank_.grid.place().data, indices);
    read_batch(dataset, indices, sample, batch);
  }

  // Takes samples on from `consumed`, as training does.
  void evaluate(const Dataset* dataset, int64_t& consumed, const std::string& at, bool is_final) {
    if (dataset == nullptr || arguments_.eval_iters == 0) return;
    Sampler sampler(sampler_options(arguments_, SampleOrder::single, dataset->size()));
    const int64_t batch = arguments_.eval_global_batch_size.value_or(1);
    const int64_t micro_batches =
        batch / (arguments_.micro_batch_size.value_or(1) * arguments_.data_parallel_size);
    StepLoss total;
    for (int64_t i = 0; i < arguments_.eval_iters; ++i) {
      const StepLoss loss =
          rank_.pipeline.evaluate(micro_batches, [&](int64_t number, Batch& micro_batch) {
            read(sampler, *dataset, {consumed, number}, micro_batch);
          });
      consumed += batch;
      total.sum += loss.sum;
      total.tokens += loss.tokens;
    }
    log_.add_validation(at, {{"lm loss", total.sum / std::max(total.tokens, 1.0)}},
                        progress_.iteration, consumed_, is_final);
  }

  // Saves what is to be saved after an iteration. True when the run is to end.
  bool decide() {
    ExitSigns signs =
        setup_.exit_watch != nullptr ? setup_.exit_watch->look(progress_.iteration) : ExitSigns{};
    double flags[] = {signs.signalled ? 1.0 : 0.0, signs.out_of_time ? 1.0 : 0.0,
                      signs.save_trigger ? 1.0 : 0.0, signs.exit_trigger ? 1.0 : 0.0};
    rank_.grid.world().add_numbers(flags);
    signs = {flags[0] > 0, flags[1] > 0, flags[2] > 0, flags[3] > 0};
    const double minutes = setup_.exit_watch != nullptr ? setup_.exit_watch->minutes() : 0;
    const ExitDecision decision = decide_exit(arguments_, progress_.iteration, signs, minutes);
    save(decision.save);
    if (decision.remove_save_trigger && group_.rank() == 0) {
      setup_.exit_watch->remove_save_trigger();
    }
    if (!decision.why.empty()) log_.tell(datetime_line(decision.why, date_and_time(now())));
    return decision.exit;
  }

  void save(SaveKind kind) {
    if (kind == SaveKind::none || arguments_.save.empty()) return;
    saved_.iteration = progress_.iteration;
    rank_.memory.wait_for_parameters();
    TrainArguments arguments = arguments_;
    arguments.consumed_train_samples = consumed_;
    arguments.skipped_train_samples = skipped_samples_;
    arguments.consumed_valid_samples = consumed_valid_;
    saver_.save(kind, snapshot_of(arguments_, rank_.memory,
                                  state_to_save(arguments, saved_, model_, progress_, schedule_,
                                                optimizer_options(arguments_))));
    if (kind != SaveKind::persistent) return;
    last_saved_ = progress_.iteration;
    log_.add_save(progress_.iteration, progress_.operations,
                  consumed_ * arguments_.seq_length.value_or(0));
    for (const int64_t iteration : saver_.take_committed()) log_.add_commit(iteration);
  }

  void finish_saves() {
    saver_.finish();
    for (const int64_t iteration : saver_.take_committed()) log_.add_commit(iteration);
  }

  const TrainArguments& arguments_;
  const RankSetup& setup_;
  Group& group_;
  std::unique_ptr<const Source> source_;
  RunModel model_;
  RunLog log_;
  PerSplit<std::shared_ptr<const Dataset>> datasets_;
  RankDevice device_;
  RankModel rank_;
  Optimizer optimizer_;
  Schedule schedule_;
  BatchSizes batches_;
  std::optional<Sampler> sampler_;
  BatchAhead batches_ahead_{[this](const BatchAhead::Place& place, Batch& batch) {
    read(*sampler_, *datasets_.train, place, batch);
  }};

  RunProgress progress_;
  SavedProgress saved_;
  int64_t consumed_ = 0, skipped_samples_ = 0, consumed_valid_ = 0;
  int64_t iterations_ = 0, last_saved_ = 0;
  RunSaver saver_;  // last: it ends before the memory that it saves
};

}  // namespace

void train(const TrainArguments& arguments, const RankSetup& setup) {
  or_abort(*setup.group, [&] {
    check_run(arguments);
    RankTrainer trainer(arguments, setup);
    or_withdraw(*setup.links, [&] { trainer.run(); });
  });
}

}  // namespace ferry
