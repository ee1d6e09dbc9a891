#include "trainer/loop/training_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/group/group.h"
#include "trainer/loop/checkpoint_session.h"
#include "trainer/loop/loop_options.h"
#include "trainer/loop/training_step.h"

namespace ferry {

namespace {

std::string time_line(std::string_view what) {
  return datetime_line(std::string(what), date_and_time(now_microseconds()));
}

NamedLosses means(const std::vector<LossSum>& losses) {
  NamedLosses means;
  for (const LossSum& loss : losses) means.emplace_back(loss.name, loss.mean());
  return means;
}

class TrainingLoop {
 public:
  TrainingLoop(const TrainArguments& arguments, const RankSetup& setup, const RankParts& parts)
      : arguments_(arguments),
        setup_(setup),
        group_(*setup.group),
        model_(parts.make_model()),
        source_(model_->take_source()),
        log_(arguments, *setup.files, group_, setup.print, setup.print_warning, parts.observer),
        batches_(batch_sizes(arguments)) {
    model_->build(log_);
    for (const std::string& warning : loop_warnings(arguments)) log_.warn(warning);
    saves_.emplace(arguments, setup, *model_, log_, make_sink(parts));
    step_.emplace(arguments, *model_, log_, saves_->sink(), group_.rank());
  }

  // All communication between ranks happens in here: memory that others read stays allocated until
  // this returns or throws.
  RunEnd run() {
    position_ = saves_->begin(std::move(source_));
    iterations_ = arguments_.train_iters.value_or(0);
    if (arguments_.train_samples) iterations_ = iterations_for(batches_, *arguments_.train_samples);
    log_model();
    log_.repeat_warnings();
    log_.begin(position_.progress.iteration, position_.progress.operations);
    const RunEnd end = train_and_finish_saves();
    const RankDevice& device = model_->device();
    // Other ranks' GPUs may still be copying from this rank's memory.
    model_->state().wait_for_parameters();
    device.kernels->wait();
    if (device.peak_bytes && group_.rank() == 0) {
      log_.write(fmt::format("peak memory of rank 0's GPU: {:.3f} GiB\n",
                             static_cast<double>(device.peak_bytes()) / (int64_t{1} << 30)));
    }
    return end;
  }

 private:
  std::unique_ptr<CheckpointSink> make_sink(const RankParts& parts) {
    if (!parts.make_sink) return nullptr;
    return parts.make_sink([this](std::string_view text) { log_.write(text); });
  }

  void log_model() {
    const GridPlace& place = model_->grid().place();
    if (place.data == 0 && place.context == 0) {
      setup_.print(parameters_line(place.tensor, place.stage, model_->state().parameter_count()));
    }
    if (group_.rank() == 0) log_.write(model_->description());
  }

  // An error that all ranks share, such as a non-finite loss, leaves saves in flight. Wait for them
  // and report their errors, too.
  RunEnd train_and_finish_saves() {
    try {
      return train();
    } catch (const SharedError& error) {
      if (!arguments_.async_save) throw;
      std::string problem;
      try {
        saves_->finish();
      } catch (const Error& of_save) {
        problem = of_save.what();
      }
      if (problem.empty()) throw;
      throw SharedError(error.kind(), fmt::format("{}. Besides: {}", error.what(), problem));
    }
  }

  // Runs until all iterations are done or the run is asked to stop.
  RunEnd train() {
    int64_t& iteration = position_.progress.iteration;
    bool is_over = false;
    if (arguments_.skip_train) {
      log_.write("skipping training (--skip-train is on) ...\n");
    } else {
      log_.write(time_line("before the start of training step"));
      while (!is_over && iteration < iterations_) is_over = iterate();
    }
    if (is_over) {
      saves_->finish();
      return iteration < iterations_ ? RunEnd::stopped : RunEnd::finished;
    }
    log_.write(time_line("after training is done"));
    if (!arguments_.skip_train && position_.last_saved != iteration) {
      saves_->save(SaveKind::persistent, position_);
    }
    saves_->finish();
    const std::string at = fmt::format("iteration {} on ", iteration);
    int64_t consumed_alone = 0, consumed_test = 0;
    evaluate(DataSplit::valid, arguments_.skip_train ? consumed_alone : position_.consumed_valid,
             at + "validation set", true);
    evaluate(DataSplit::test, consumed_test, at + "test set", true);
    return RunEnd::finished;
  }

  // Returns true if the run should stop.
  bool iterate() {
    const IterationBatch batch = batch_at(batches_, position_.consumed);
    save_before_change(batch);
    const auto& skipped = arguments_.iterations_to_skip;
    if (std::ranges::find(skipped, position_.progress.iteration + 1) != skipped.end()) {
      skip(batch);
      return false;
    }
    step_->run(position_, batch, iterations_);
    const int64_t iteration = position_.progress.iteration;
    const bool is_due = arguments_.eval_interval && iteration % *arguments_.eval_interval == 0 &&
                        iteration >= arguments_.start_eval_at_iter.value_or(0);
    log_.pause();
    if (is_due) {
      evaluate(DataSplit::valid, position_.consumed_valid, fmt::format("iteration {}", iteration),
               false);
    }
    const bool is_over = decide();
    log_.go_on();
    return is_over;
  }

  // Saves before a change of the batch size, as Megatron-LM does, so that a run can resume with the
  // old one.
  void save_before_change(const IterationBatch& batch) {
    const int64_t before = std::exchange(micro_batches_, batch.micro_batches);
    if (before == 0 || before == batch.micro_batches) return;
    if (position_.last_saved == position_.progress.iteration) return;
    log_.pause();
    saves_->save(SaveKind::persistent, position_);
    log_.go_on();
  }

  // Skips an iteration: consumes its samples without training.
  void skip(const IterationBatch& batch) {
    ++position_.progress.iteration;
    position_.consumed += batch.running;
    position_.skipped += batch.running;
  }

  // Consumes samples from `consumed` on, as training does. A long evaluation does not delay saving
  // and stopping: it is abandoned without a result, and the next one takes the samples that would
  // have followed.
  void evaluate(DataSplit split, int64_t& consumed, const std::string& at, bool is_final) {
    if (!model_->has_samples(split) || arguments_.eval_iters == 0) return;
    const int64_t batch = arguments_.eval_global_batch_size.value_or(1);
    const int64_t block = arguments_.micro_batch_size.value_or(1) * arguments_.data_parallel_size;
    const IterationBatch iteration{batch, batch, batch / block};
    const int64_t done = position_.progress.iteration;
    const int64_t first = std::exchange(consumed, consumed + arguments_.eval_iters * batch);
    std::vector<LossSum> total;
    for (int64_t i = 0; i < arguments_.eval_iters; ++i) {
      if (i > 0 && is_to_end()) {
        return log_.write(fmt::format(
            "stopping the evaluation after {} of {} batches because the run is about to end\n", i,
            arguments_.eval_iters));
      }
      const std::vector<LossSum> losses = model_->evaluate(split, {first + i * batch, iteration});
      log_.observer().on_evaluation_batch(split, means(losses), done);
      if (total.empty()) {
        total = losses;
        continue;
      }
      for (size_t k = 0; k < total.size(); ++k) {
        total[k].sum += losses[k].sum;
        total[k].count += losses[k].count;
      }
    }
    log_.observer().on_evaluation(split, means(total), done);
    log_.add_validation(at, means(total), done, position_.consumed, is_final);
  }

  // Whether any rank has been asked to stop.
  bool is_to_end() {
    if (!arguments_.exit_duration_in_mins && !arguments_.exit_signal_handler) return false;
    const ExitWatch* const watch = setup_.exit_watch;
    double ranks = watch != nullptr && watch->is_to_end() ? 1 : 0;
    model_->grid().world().add_numbers({&ranks, 1});
    return ranks > 0;
  }

  // Saves if due after an iteration. Returns true if the run should stop.
  bool decide() {
    const int64_t iteration = position_.progress.iteration;
    const ExitWatch* const watch = setup_.exit_watch;
    ExitSigns signs = watch != nullptr ? watch->observe(iteration) : ExitSigns{};
    // Only rank 0 checks trigger files: other hosts may still see a removed one (NFS) and would
    // save again and again.
    if (group_.rank() != 0) signs.save_trigger = signs.exit_trigger = false;
    double flags[] = {signs.signalled ? 1.0 : 0.0, signs.out_of_time ? 1.0 : 0.0,
                      signs.save_trigger ? 1.0 : 0.0, signs.exit_trigger ? 1.0 : 0.0,
                      trigger_stays_ ? 1.0 : 0.0};
    model_->grid().world().add_numbers(flags);
    signs = {flags[0] > 0, flags[1] > 0, flags[2] > 0 && flags[4] == 0, flags[3] > 0};
    const double minutes = watch != nullptr ? watch->minutes() : 0;
    const ExitDecision decision = decide_exit(arguments_, iteration, signs, minutes);
    saves_->save(decision.save, position_);
    if (decision.remove_save_trigger && group_.rank() == 0) remove_save_trigger(*watch);
    if (!decision.why.empty()) log_.write(time_line(decision.why));
    if (decision.obeys_exit_trigger && group_.rank() == 0) put_exit_trigger_away(*watch);
    return decision.exit;
  }

  void remove_save_trigger(const ExitWatch& watch) {
    try {
      watch.remove_save_trigger();
    } catch (const Error& error) {
      trigger_stays_ = true;
      log_.write(
          fmt::format("WARNING: {}: the save trigger is ignored from now on\n", error.what()));
    }
  }

  void put_exit_trigger_away(const ExitWatch& watch) {
    try {
      watch.put_exit_trigger_away();
    } catch (const Error& error) {
      log_.write(fmt::format(
          "WARNING: {}: the exit trigger remains and would end the next run, too; remove {}\n",
          error.what(), join(arguments_.trigger_path, arguments_.exit_trigger)));
    }
  }

  const TrainArguments& arguments_;
  const RankSetup& setup_;
  Group& group_;
  std::unique_ptr<TrainedModel> model_;
  std::unique_ptr<const Source> source_;
  RunLog log_;
  BatchSizes batches_;
  RunPosition position_;
  int64_t iterations_ = 0;
  int64_t micro_batches_ = 0;   // of the previous iteration in this process
  bool trigger_stays_ = false;  // the file of --save-trigger could not be removed; rank 0's
  std::optional<CheckpointSession>
      saves_;  // after model_: destroyed before the memory that it saves
  std::optional<TrainingStep> step_;
};

// Adds advice to an error about a device that is out of memory.
template <typename Work>
void with_advice_on_memory(const Work& work) {
  try {
    work();
  } catch (const kernels::OutOfDeviceMemory& error) {
    fail(ErrorKind::exhausted,
         "{}; use a smaller --micro-batch-size, --recompute-granularity full, "
         "--use-distributed-optimizer or more ranks (--dry-run shows the memory of a rank)",
         error.what());
  }
}

}  // namespace

RunEnd train(const TrainArguments& arguments, const RankSetup& setup, const RankParts& parts) {
  RunEnd end = RunEnd::finished;
  or_abort(*setup.group, [&] {
    check_loop(arguments);
    std::optional<TrainingLoop> loop;
    with_advice_on_memory([&] { loop.emplace(arguments, setup, parts); });
    // or_withdraw() passes the error to the other ranks, including the advice.
    or_withdraw(*setup.links, [&] { with_advice_on_memory([&] { end = loop->run(); }); });
  });
  return end;
}

void on_rank_threads(int ranks,
                     const std::function<void(int rank, const std::shared_ptr<Group>& group,
                                              const std::shared_ptr<Links>& links)>& work) {
  const auto groups = thread_groups(ranks);
  const auto links = thread_links(groups);
  std::vector<std::exception_ptr> errors(groups.size());
  {
    std::vector<std::jthread> threads;
    for (size_t rank = 0; rank < groups.size(); ++rank) {
      threads.emplace_back([&, rank] {
        try {
          work(static_cast<int>(rank), groups[rank], links[rank]);
        } catch (...) {
          errors[rank] = std::current_exception();
        }
      });
    }
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace ferry
