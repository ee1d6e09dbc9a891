// The log of a run: lines, TensorBoard events, metrics, progress.txt and timers.
#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "ckpt/group/group.h"
#include "trainer/data/data_options.h"
#include "trainer/log/log_files.h"
#include "trainer/log/log_lines.h"
#include "trainer/log/progress_log.h"
#include "trainer/log/timers.h"

namespace ferry {

/// Receives what is logged, on every rank and for every iteration.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  /// The iteration's own figures, without time and throughput, which are not known yet.
  virtual void on_iteration(const TrainingLine& line, bool is_skipped) {
    static_cast<void>(line), static_cast<void>(is_skipped);
  }
  /// Called for each batch of an evaluation after `iteration`, then for all of it.
  virtual void on_evaluation_batch(DataSplit split, const NamedLosses& losses, int64_t iteration) {
    static_cast<void>(split), static_cast<void>(losses), static_cast<void>(iteration);
  }
  virtual void on_evaluation(DataSplit split, const NamedLosses& losses, int64_t iteration) {
    static_cast<void>(split), static_cast<void>(losses), static_cast<void>(iteration);
  }
};

/// One per rank; all ranks make the same calls. Rank 0 prints general messages; the last rank
/// prints iterations and writes their files.
class RunLog {
 public:
  using Print = std::function<void(std::string_view text)>;

  /// `print_warning` gets what goes to standard error; if empty, `print` gets it. `observer` may be
  /// null.
  RunLog(const TrainArguments& arguments, const FileSystem& files, Group& group, Print print,
         Print print_warning = {}, RunObserver* observer = nullptr);

  Timers& timers() noexcept { return timers_; }
  /// Printed by rank 0. A text that starts with kWarning is a warning.
  void write(std::string_view text);
  static constexpr std::string_view kWarning = "WARNING: ";
  void warn(std::string_view sentence) {
    write(std::string(kWarning) + std::string(sentence) + "\n");
  }
  /// At the end of startup: prints all warnings so far once more, because they have scrolled far
  /// up.
  void repeat_warnings();

  /// Prints what Megatron-LM prints before it builds a model: the ranks, the arguments, ...
  void write_arguments();
  /// Called right before the first iteration. `operations`: floating-point operations of the run so
  /// far.
  void begin(int64_t iteration, double operations);
  /// Logs an iteration; `line` has its own figures. Fills in time, throughput and averages.
  /// `operations`: those of the iteration.
  void add(TrainingLine line, double operations, bool is_skipped);
  RunObserver& observer() noexcept { return *observer_; }

  /// Logs an evaluation after `iteration`; `at` as in validation_lines(). `is_final`: after the
  /// last iteration, or without training: not written to event files.
  void add_validation(const std::string& at, const NamedLosses& losses, int64_t iteration,
                      int64_t consumed_samples, bool is_final);
  /// Excludes time between iterations.
  void pause();
  void go_on();

  /// --log-progress: a persistent save has started; an asynchronous one is on disk.
  void add_save(int64_t iteration, double operations, int64_t tokens);
  void add_commit(int64_t iteration);

 private:
  using Clock = std::chrono::steady_clock;

  bool is_last() const { return group_.rank() == group_.size() - 1; }
  /// Calls write(file) if there is a file. A write error closes the file and does not end the run.
  template <typename File, typename Write>
  void write_to(std::optional<File>& file, std::string_view flag, const Write& write);
  void write_figures(const TrainingLine& line);
  void print_timers(int64_t iterations);
  void check_for_spike(const TrainingLine& line);

  const TrainArguments& arguments_;
  Group& group_;
  Print print_, print_warning_;
  RunObserver nobody_;
  RunObserver* observer_;
  Timers timers_;
  LossWindow window_;
  Clock::time_point window_begin_, begin_;
  std::optional<Clock::time_point> paused_;
  int64_t first_ = 0;  // first iteration of this process
  double first_operations_ = 0;
  double largest_loss_ = 0;
  int64_t losses_seen_ = 0;
  std::optional<EventFile> events_;
  std::optional<LineFile> metrics_;
  std::unique_ptr<LockableFile> metrics_lock_;
  std::optional<ProgressLog> progress_;
  std::mutex mutex_;  // guards the following: saves report from other threads
  bool has_begun_ = false;
  std::string warnings_;  // of the startup
};

}  // namespace ferry
