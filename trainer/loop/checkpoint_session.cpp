#include "trainer/loop/checkpoint_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ckpt/group/group.h"
#include "trainer/checkpoint/run_folder_sink.h"
#include "trainer/loop/loop_options.h"

namespace ferry {

CheckpointSession::CheckpointSession(const TrainArguments& arguments, const RankSetup& setup,
                                     TrainedModel& model, RunLog& log,
                                     std::unique_ptr<CheckpointSink> sink)
    : arguments_(arguments),
      group_(*setup.group),
      model_(model),
      log_(log),
      sink_(std::move(sink)) {
  if (sink_) return;
  sink_ = std::make_unique<RunFolderSink>(arguments, setup.files, group_, model.device().stager,
                                          [this](std::string_view text) { log_.write(text); });
}

namespace {

// Counts consumed samples as Megatron-LM does if the checkpoint does not store them.
void count_consumed(const TrainArguments& arguments, const std::string& path,
                    RunPosition& position) {
  const int64_t iteration = position.progress.iteration;
  if (arguments.train_samples && iteration > 0 && position.consumed == 0) {
    throw SharedError(ErrorKind::mismatch,
                      path +
                          ": the number of consumed samples, which --train-samples needs, is not "
                          "stored; give --train-iters");
  }
  if (arguments.train_samples) return;
  if (position.consumed == 0) {
    position.consumed = iteration * arguments.global_batch_size.value_or(1);
  }
  if (position.consumed_valid != 0 || !arguments.eval_interval) return;
  const int64_t first = arguments.start_eval_at_iter.value_or(0) / *arguments.eval_interval;
  const int64_t evaluations = std::max<int64_t>(0, iteration / *arguments.eval_interval - first);
  position.consumed_valid =
      evaluations * arguments.eval_iters * arguments.eval_global_batch_size.value_or(1);
}

}  // namespace

RunPosition CheckpointSession::begin(std::unique_ptr<const Source> source) {
  RunPosition position;
  position.schedule = schedule_of(arguments_);
  position.progress.scaler = loss_scaler(arguments_);
  if (!source || !source->skipped_prefixes.empty()) {
    model_.initialize();
    model_.state().copy_to_masters();
  }
  if (source) {
    load(*source, position);
    // The checkpoint must not be removed before all ranks have read it.
    group_.barrier();
    if (arguments_.override_ckpt_iteration) {
      position.progress.iteration = *arguments_.override_ckpt_iteration;
      position.consumed = position.progress.iteration * arguments_.global_batch_size.value_or(1);
      position.skipped = 0;
    }
    count_consumed(arguments_, source->checkpoint.path, position);
    // Overriding the saved schedule also resets its position to the consumed samples.
    const bool has_schedule = !source->weights_only && !arguments_.no_load_optim;
    if (arguments_.override_opt_param_scheduler && has_schedule) {
      go_by_samples(position);
    }
  }
  saved_.start_iteration = position.last_saved = position.progress.iteration;
  saved_.start_operations = position.progress.operations;
  const bool goes_on = source && !source->weights_only;
  sink_->prepare(regions_to_save(arguments_, model_.state()),
                 goes_on ? source->checkpoint.path : std::string());
  return position;
}

void CheckpointSession::go_by_samples(RunPosition& position) {
  int64_t& stepped = position.progress.schedule_samples;
  if (stepped == position.consumed) return;
  log_.write(
      fmt::format("WARNING: the learning rate continues from the {} consumed samples, not from the "
                  "{} samples of its schedule (--override-opt-param-scheduler)\n",
                  position.consumed, stepped));
  stepped = position.consumed;
}

void CheckpointSession::load(const Source& source, RunPosition& position) {
  const RunState& state = source.state;
  const std::string& path = source.checkpoint.path;
  const bool without_optimizer = arguments_.no_load_optim || source.weights_only;
  // Report mismatches before reading tensors.
  if (!source.weights_only) {
    position.progress =
        read_progress_of(state, path, arguments_, position.schedule, position.progress);
    position.consumed = source.consumed.train.value_or(0);
    position.skipped = source.consumed.skipped.value_or(0);
    position.consumed_valid = source.consumed.valid.value_or(0);
    model_.set_objects(state.common, path);
  }
  const int64_t iteration = position.progress.iteration;
  log_.write(fmt::format(" loading checkpoint from {} at iteration {}\n", path, iteration));
  if (!without_optimizer) {
    const auto others = other_optimizer_arguments(state, optimizer_options(arguments_));
    if (!others.empty()) {
      log_.write(fmt::format(
          "WARNING: {} was trained with {}; the optimizer continues with this run's values\n", path,
          fmt::join(others, ", ")));
    }
  }
  const Load weights = arguments_.load_main_params_from_ckpt ? Load::main_weights : Load::weights;
  load_tensors(source.checkpoint, state, model_.device().stager.get(), model_.state(),
               without_optimizer ? weights : Load::all, source.skipped_prefixes);
  const GridSizes& sizes = model_.grid().sizes();
  log_.write(fmt::format(
      "  successfully loaded checkpoint from {} [ t 1/{}, gtp_remat 1/1, p 1/{} ] at iteration "
      "{}\n",
      path, sizes.tensor, sizes.pipeline, iteration));
}

void CheckpointSession::save(SaveKind kind, RunPosition& position) {
  if (kind == SaveKind::none || arguments_.save.empty()) return;
  const RunProgress& progress = position.progress;
  saved_.iteration = progress.iteration;
  model_.state().wait_for_parameters();
  TrainArguments arguments = arguments_;
  arguments.consumed_train_samples = position.consumed;
  arguments.skipped_train_samples = position.skipped;
  arguments.consumed_valid_samples = position.consumed_valid;
  RunState state = state_to_save(arguments, saved_, model_.layout(), progress, position.schedule,
                                 optimizer_options(arguments_));
  for (auto& object : model_.objects()) state.common.push_back(std::move(object));
  sink_->save(kind, regions_to_save(arguments_, model_.state()), std::move(state));
  if (kind != SaveKind::persistent) return;
  position.last_saved = progress.iteration;
  log_.add_save(progress.iteration, progress.operations,
                position.consumed * arguments_.seq_length.value_or(0));
  log_committed();
}

void CheckpointSession::finish() {
  sink_->finish();
  log_committed();
}

void CheckpointSession::log_committed() {
  for (const int64_t iteration : sink_->take_committed()) log_.add_commit(iteration);
}

}  // namespace ferry
