// What a run tells of its iterations: lines, TensorBoard's events, metrics, progress.txt, timers.
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

/// Told the same as what is printed and written, on every rank: every iteration of it.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  /// Of the iteration alone. Its time and throughput are not known yet.
  virtual void on_iteration(const TrainingLine& line, bool is_skipped) {
    static_cast<void>(line), static_cast<void>(is_skipped);
  }
  /// Of each batch of an evaluation after `iteration`, then of all of it.
  virtual void on_evaluation_batch(DataSplit split, const NamedLosses& losses, int64_t iteration) {
    static_cast<void>(split), static_cast<void>(losses), static_cast<void>(iteration);
  }
  virtual void on_evaluation(DataSplit split, const NamedLosses& losses, int64_t iteration) {
    static_cast<void>(split), static_cast<void>(losses), static_cast<void>(iteration);
  }
};

/// One of each rank; all ranks call it alike. Rank 0 prints what is told once, the last rank what
/// is told of iterations, and writes their files.
class RunLog {
 public:
  using Print = std::function<void(std::string_view text)>;

  /// `print_warning` takes what goes to standard error; empty: `print` takes it, too. `observer`
  /// may be null.
  RunLog(const TrainArguments& arguments, const FileSystem& files, Group& group, Print print,
         Print print_warning = {}, RunObserver* observer = nullptr);

  Timers& timers() noexcept { return timers_; }
  /// By rank 0. What begins with kWarning is a warning.
  void tell(std::string_view text);
  static constexpr std::string_view kWarning = "WARNING: ";
  void warn(std::string_view sentence) {
    tell(std::string(kWarning) + std::string(sentence) + "\n");
  }
  /// At the end of the start: what was warned of so far, once more, for it stands far above by now.
  void repeat_warnings();

  /// What Megatron-LM tells before it builds a model: the ranks, the arguments, ...
  void tell_arguments();
  /// Right before the first iteration. `operations`: floating-point ones of the run so far.
  void begin(int64_t iteration, double operations);
  /// Of the iteration alone; time, throughput and averages are filled in here. `operations`: of it.
  void add(TrainingLine line, double operations, bool is_skipped);
  RunObserver& observer() noexcept { return *observer_; }

  /// Of an evaluation after `iteration`; `at` as in validation_lines(). `is_final`: behind the last
  /// iteration, or instead of any: no event of it is written.
  void add_validation(const std::string& at, const NamedLosses& losses, int64_t iteration,
                      int64_t consumed_samples, bool is_final);
  /// What happens between iterations is not counted as theirs.
  void pause();
  void go_on();

  /// --log-progress, of a persistent checkpoint: begun, and of an asynchronous one on disk.
  void add_save(int64_t iteration, double operations, int64_t tokens);
  void add_commit(int64_t iteration);

 private:
  using Clock = std::chrono::steady_clock;

  bool is_last() const { return group_.rank() == group_.size() - 1; }
  /// write(file), where there is one. What cannot be written ends the file, and not the run.
  template <typename File, typename Write>
  void write_to(std::optional<File>& file, std::string_view flag, const Write& write);
  void write_figures(const TrainingLine& line);
  void print_timers(int64_t iterations);
  void look_for_spike(const TrainingLine& line);

  const TrainArguments& arguments_;
  Group& group_;
  Print print_, print_warning_;
  RunObserver nobody_;
  RunObserver* observer_;
  Timers timers_;
  LossWindow window_;
  Clock::time_point window_begin_, begin_;
  std::optional<Clock::time_point> paused_;
  int64_t first_ = 0;  // iteration that this process does first
  double first_operations_ = 0;
  double largest_loss_ = 0;
  int64_t losses_seen_ = 0;
  std::optional<EventFile> events_;
  std::optional<LineFile> metrics_;
  std::unique_ptr<LockableFile> metrics_lock_;
  std::optional<ProgressLog> progress_;
  std::mutex mutex_;  // of what follows: saves report from threads of their own
  bool has_begun_ = false;
  std::string warnings_;  // of the start
};

}  // namespace ferry
