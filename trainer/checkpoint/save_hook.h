// Runs a command after each checkpoint is on disk (--after-save), for example to convert, evaluate
// or upload it. Its failure does not affect training.
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
  std::string command;      // for the shell
  double most_seconds = 0;  // then it is killed
};

/// Runs one command at a time, in its own thread and process group. A checkpoint saved meanwhile
/// waits; if several wait, only the last one's command runs. FERRY_ITERATION, FERRY_CHECKPOINT (the
/// iteration's folder) and FERRY_RUN (the run's) are in the command's environment; it inherits the
/// program's output. A command that fails or takes too long is logged.
class SaveHook {
 public:
  using Print = std::function<void(std::string_view text)>;

  /// `print` is called from another thread.
  SaveHook(SaveHookOptions options, Print print);
  /// Kills a running command.
  ~SaveHook();
  SaveHook(const SaveHook&) = delete;
  SaveHook& operator=(const SaveHook&) = delete;

  void saved(int64_t iteration, const std::string& run);
  /// Whether this iteration's command is running or waiting and needs its checkpoint.
  bool uses(int64_t iteration) const;
  /// Waits for the running and the waiting command, each at most for the time limit.
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
  std::optional<Saved> next_;       // guarded by mutex_, as all below
  std::optional<int64_t> running_;  // iteration
  bool is_over_ = false;
  std::thread worker_;
};

}  // namespace ferry
