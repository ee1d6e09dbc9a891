#include "trainer/log/run_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "trainer/arguments/namespace.h"
#include "trainer/schedule/flops.h"

namespace ferry {

namespace {

constexpr double kSpike = 10;  // times the largest loss so far
constexpr int64_t kLossesBeforeSpike = 100;

bool divides(int64_t interval, int64_t iteration) {
  return iteration % std::max<int64_t>(interval, 1) == 0;
}

constexpr std::string_view kEvents = "--tensorboard-dir", kMetrics = "--metrics-json",
                           kProgress = "--log-progress";

void add_all(EventFile& events, const std::vector<Scalar>& scalars) {
  for (const Scalar& scalar : scalars) events.add(scalar.name, scalar.value, scalar.step);
}

std::string job_id() {
  const char* const job = std::getenv("SLURM_JOB_ID");
  return job == nullptr ? "" : job;
}

}  // namespace

RunLog::RunLog(const TrainArguments& arguments, const FileSystem& files, Group& group, Print print,
               Print print_warning, RunObserver* observer)
    : arguments_(arguments),
      group_(group),
      print_(std::move(print)),
      print_warning_(print_warning ? std::move(print_warning) : print_),
      observer_(observer != nullptr ? observer : &nobody_),
      timers_(static_cast<int>(arguments.timing_log_level)) {
  if (is_last() && !arguments.tensorboard_dir.empty()) {
    make_folders(files, arguments.tensorboard_dir);
    events_.emplace(files, arguments.tensorboard_dir);
  }
  if (is_last() && !arguments.metrics_json.empty()) {
    make_folders(files, split_path(arguments.metrics_json).parent);
    metrics_.emplace(files, arguments.metrics_json);
    metrics_lock_ = lock_of_writer(files, arguments.metrics_json);
  }
  if (group.rank() == 0 && arguments.log_progress && !arguments.save.empty()) {
    progress_.emplace(files, arguments.save, job_id(), group.size());
    progress_->append(kJobStarted);
  }
}

void RunLog::write(std::string_view text) {
  if (group_.rank() != 0) return;
  if (!text.starts_with(kWarning)) return print_(text);
  print_warning_(text);
  const std::lock_guard lock(mutex_);
  if (!has_begun_) warnings_ += text;
}

void RunLog::repeat_warnings() {
  const std::lock_guard lock(mutex_);
  has_begun_ = true;
  if (!warnings_.empty()) print_warning_(warnings_);
}

void RunLog::write_arguments() {
  const int64_t samples = arguments_.micro_batch_size.value_or(1) * arguments_.data_parallel_size;
  write(
      world_line(arguments_) + dtype_line(arguments_) + arguments_banner(arguments_) +
      micro_batches_line(arguments_.global_batch_size.value_or(1) / std::max<int64_t>(samples, 1)) +
      vocabulary_line(arguments_.vocab_size.value_or(0), arguments_.padded_vocab_size.value_or(0)) +
      seed_line(arguments_.seed));
}

void RunLog::begin(int64_t iteration, double operations) {
  first_ = iteration + 1;
  first_operations_ = operations;
  begin_ = window_begin_ = Clock::now();
}

void RunLog::pause() { paused_ = Clock::now(); }

void RunLog::go_on() {
  if (paused_) window_begin_ += Clock::now() - *paused_;
  paused_.reset();
}

void RunLog::add(TrainingLine line, double operations, bool is_skipped) {
  observer_->on_iteration(line, is_skipped);
  ferry::add(window_, line.losses, is_skipped);
  if (arguments_.check_for_spiky_loss) check_for_spike(line);
  const bool is_first = line.iteration == first_;
  const bool is_logged = divides(arguments_.log_interval, line.iteration) || is_first;
  const auto now = Clock::now();
  const std::chrono::duration<double> elapsed = now - window_begin_;
  const double seconds = elapsed.count() / static_cast<double>(window_.iterations());
  if (is_logged) {
    line.milliseconds = seconds * 1000;
    if (arguments_.log_throughput) {
      line.teraflops = teraflops(operations, seconds, group_.size());
    }
  }
  write_figures(line);
  if (!is_logged) return;
  line.losses = averages(window_);
  line.skipped = window_.skipped;
  line.nan = window_.nan;
  line.date_and_time = date_and_time(now_microseconds());
  if (is_last()) print_(training_line(line) + "\n");
  print_timers(window_.iterations());
  if (is_first) return;
  start_again(window_);
  window_begin_ = now;
}

template <typename File, typename Write>
void RunLog::write_to(std::optional<File>& file, std::string_view flag, const Write& write) {
  if (!file) return;
  try {
    write(*file);
  } catch (const Error& error) {
    print_(fmt::format("WARNING: {} is no longer written: {}\n", flag, error.what()));
    file.reset();
  }
}

// Events and metrics are an iteration's own, not averages.
void RunLog::write_figures(const TrainingLine& line) {
  const bool is_timed = line.milliseconds > 0;
  write_to(events_, kEvents, [&](EventFile& events) {
    if (divides(arguments_.tensorboard_log_interval, line.iteration)) {
      add_all(events, training_scalars(arguments_, line));
    }
    if (is_timed && line.iteration != first_) add_all(events, timing_scalars(arguments_, line));
  });
  write_to(metrics_, kMetrics, [&](LineFile& metrics) {
    if (divides(arguments_.log_interval, line.iteration)) {
      metrics.append(ferry::metrics_json(line));
    }
  });
}

void RunLog::check_for_spike(const TrainingLine& line) {
  if (line.losses.empty() || !std::isfinite(line.losses.front().second)) return;
  const double loss = line.losses.front().second;
  if (losses_seen_ >= kLossesBeforeSpike && loss > kSpike * largest_loss_) {
    write(
        fmt::format("WARNING: the loss of iteration {}, {:.6E}, is more than {} times the largest "
                    "so far, {:.6E}\n",
                    line.iteration, loss, kSpike, largest_loss_));
  }
  largest_loss_ = std::max(largest_loss_, loss);
  ++losses_seen_;
}

void RunLog::print_timers(int64_t iterations) {
  if (arguments_.timing_log_level < 1) return;
  const auto names = timers_of_level(static_cast<int>(arguments_.timing_log_level));
  std::string own;
  for (const std::string_view name : names) {
    const double seconds = timers_.seconds(std::string(name));
    own.append(reinterpret_cast<const char*>(&seconds), sizeof seconds);
  }
  const std::vector<std::string> all = group_.exchange(std::move(own));
  std::vector<RankTimes> times;
  for (size_t i = 0; i < names.size(); ++i) {
    RankTimes& timer = times.emplace_back();
    timer.name = names[i];
    for (const std::string& rank : all) {
      double seconds = 0;
      std::memcpy(&seconds, rank.data() + i * sizeof seconds, sizeof seconds);
      timer.seconds.push_back(seconds);
    }
  }
  if (is_last()) print_(timer_lines(times, arguments_.timing_log_option, iterations));
}

void RunLog::add_validation(const std::string& at, const NamedLosses& losses, int64_t iteration,
                            int64_t consumed_samples, bool is_final) {
  if (!is_last()) return;
  print_(validation_lines(at, losses));
  if (is_final) return;
  write_to(events_, kEvents, [&](EventFile& events) {
    add_all(events, validation_scalars(arguments_, losses, iteration, consumed_samples));
    events.sync();
  });
  write_to(metrics_, kMetrics, [&](LineFile& metrics) {
    metrics.append(validation_json(losses, iteration, consumed_samples));
  });
}

void RunLog::add_save(int64_t iteration, double operations, int64_t tokens) {
  if (!progress_) return;
  const std::chrono::duration<double> elapsed = Clock::now() - begin_;
  ProgressSave save;
  save.iteration = iteration;
  save.job_teraflops = teraflops(operations - first_operations_, elapsed.count(), group_.size());
  save.operations = operations;
  save.tokens = tokens;
  write_to(progress_, kProgress,
           [&](ProgressLog& progress) { progress.append_save(save, arguments_.async_save); });
}

void RunLog::add_commit(int64_t iteration) {
  if (!arguments_.async_save) return;
  write_to(progress_, kProgress,
           [&](ProgressLog& progress) { progress.append(committed_message(iteration)); });
}

}  // namespace ferry
