#include "trainer/checkpoint/save_hook.h"

#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "ckpt/io/file_system.h"
#include "ckpt/store/run_folder.h"

namespace ferry {

namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kLook = std::chrono::milliseconds(20);     // polling interval of the command
constexpr auto kGrace = std::chrono::milliseconds(2000);  // between SIGTERM and SIGKILL

// Starts the command in its own process group, so that its children end with it. 0 on failure.
pid_t start(const std::string& command, std::vector<std::string> additions, int& error) {
  std::vector<char*> environment;
  for (char** one = environ; *one != nullptr; ++one) environment.push_back(*one);
  for (std::string& one : additions) environment.push_back(one.data());
  environment.push_back(nullptr);
  std::string shell = "sh", option = "-c", text = command;
  char* words[] = {shell.data(), option.data(), text.data(), nullptr};
  // Resets the signal mask and SIGPIPE: a run's threads may block signals, and the run ignores
  // SIGPIPE.
  sigset_t none, ignored;
  ::sigemptyset(&none);
  ::sigemptyset(&ignored);
  ::sigaddset(&ignored, SIGPIPE);
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", 0, 0);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setflags(
      &attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &ignored);
  pid_t process = 0;
  error = ::posix_spawn(&process, "/bin/sh", &actions, &attributes, words, environment.data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  return error == 0 ? process : 0;
}

std::string why_failed(int status) {
  if (WIFEXITED(status)) {
    return WEXITSTATUS(status) == 0 ? "" : fmt::format("exit code {}", WEXITSTATUS(status));
  }
  return fmt::format("signal {}", WTERMSIG(status));
}

}  // namespace

SaveHook::SaveHook(SaveHookOptions options, Print print)
    : options_(std::move(options)), print_(std::move(print)), worker_([this] { work(); }) {}

SaveHook::~SaveHook() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    next_.reset();
  }
  changed_.notify_all();
  worker_.join();
}

void SaveHook::saved(int64_t iteration, const std::string& run) {
  std::optional<Saved> passed;
  {
    const std::lock_guard lock(mutex_);
    passed = std::exchange(next_, Saved{iteration, run});
  }
  changed_.notify_all();
  if (!passed) return;
  print_(
      fmt::format("WARNING: --after-save: the command for an earlier checkpoint is still running; "
                  "skipping iteration {}\n",
                  passed->iteration));
}

bool SaveHook::uses(int64_t iteration) const {
  const std::lock_guard lock(mutex_);
  return (next_ && next_->iteration == iteration) || running_ == iteration;
}

void SaveHook::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !next_ && !running_; });
}

void SaveHook::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return next_ || is_over_; });
    if (is_over_) return;
    const Saved saved = *std::exchange(next_, std::nullopt);
    running_ = saved.iteration;
    lock.unlock();
    run(saved);
    lock.lock();
    running_.reset();
    changed_.notify_all();
  }
}

void SaveHook::run(const Saved& saved) {
  const std::string name = iteration_folder_name(saved.iteration);
  const auto warn = [&](const std::string& problem) {
    print_(fmt::format(
        "WARNING: --after-save: the command for iteration {} failed: {}; training continues\n",
        saved.iteration, problem));
  };
  int error = 0, status = 0;
  const pid_t process =
      start(options_.command,
            {fmt::format("FERRY_ITERATION={}", saved.iteration),
             "FERRY_CHECKPOINT=" + join(saved.run, name), "FERRY_RUN=" + saved.run},
            error);
  if (process == 0) return warn(std::strerror(error));
  const auto limit = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(options_.most_seconds));
  const auto begin = Clock::now();
  std::optional<Clock::time_point> ended;  // by this thread
  bool took_too_long = false;
  while (::waitpid(process, &status, WNOHANG) == 0) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kLook, [this] { return is_over_; });
    const bool is_too_long = Clock::now() - begin > limit;
    if (!ended && (is_over_ || is_too_long)) {
      ended = Clock::now();
      took_too_long = is_too_long;
      ::kill(-process, SIGTERM);
    } else if (ended && Clock::now() - *ended > kGrace) {
      ::kill(-process, SIGKILL);
    }
    if (is_over_) {
      lock.unlock();
      std::this_thread::sleep_for(kLook);
    }
  }
  if (ended) {
    ::kill(-process, SIGKILL);  // remaining children
    if (!took_too_long) {
      return print_(fmt::format(
          "WARNING: --after-save: the run ends: the command for iteration {} was stopped\n",
          saved.iteration));
    }
    return warn(
        fmt::format("it took longer than {:.0f} s (--after-save-seconds)", options_.most_seconds));
  }
  const std::string why = why_failed(status);
  if (!why.empty()) warn(why);
}

}  // namespace ferry
