// A command that runs after each checkpoint that is on disk (--after-save): to convert, evaluate or
// upload it. Whatever it does, training goes on.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

namespace ferry {

struct SaveHookOptions {
  std::string command;      // of the shell
  double most_seconds = 0;  // after which it is ended
};

/// One command at a time, in a thread and a process group of its own. A checkpoint that is saved
/// while one runs waits; of several that wait the last stays. FERRY_ITERATION, FERRY_CHECKPOINT
/// (the iteration's folder) and FERRY_RUN (the run's) are in the command's environment; what it
/// prints goes where the program's output goes. A command that fails, or takes too long, is told.
class SaveHook {
 public:
  using Print = std::function<void(std::string_view text)>;

  /// `print` is called from another thread.
  SaveHook(SaveHookOptions options, Print print);
  /// Ends a command that still runs.
  ~SaveHook();
  SaveHook(const SaveHook&) = delete;
  SaveHook& operator=(const SaveHook&) = delete;

  void saved(int64_t iteration, const std::string& run);
  /// Whether a command of this iteration runs or waits: its checkpoint is wanted.
  bool uses(int64_t iteration) const;
  /// Waits for what runs and what waits: at most the time limit for each.
  void finish();

 private:
  struct Saved {
    int64_t iteration = 0;
    std::string run;
  };
  void work();
  void run(const Saved& saved);

  SaveHookOptions options_;
  Print print_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Saved> next_;       // under mutex_, as all below
  std::optional<int64_t> running_;  // iteration
  bool is_over_ = false;
  std::thread worker_;
};

}  // namespace ferry
