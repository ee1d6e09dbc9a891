#include "trainer/loop/exit_watch.h"

#include <array>
#include <atomic>
#include <csignal>

#include "ckpt/base/error.h"
#include "trainer/arguments/argument_value.h"

namespace ferry {
namespace {

// A handler has nothing but what lives as long as the process. 0: not watched, 1: watched, 2: came.
constexpr int kMostSignal = 64;
std::array<std::atomic<int>, kMostSignal + 1> watched_signals{};
static_assert(std::atomic<int>::is_always_lock_free);

void remember(int signal) { watched_signals[static_cast<size_t>(signal)].store(2); }

}  // namespace

struct SignalWatch::Old {
  struct sigaction action;
};

SignalWatch::SignalWatch(int signal) : signal_(signal), old_(std::make_unique<Old>()) {
  if (signal < 1 || signal > kMostSignal) fail(ErrorKind::invalid, "{} is no signal", signal);
  int free = 0;
  if (!watched_signals[static_cast<size_t>(signal)].compare_exchange_strong(free, 1)) {
    fail(ErrorKind::invalid, "signal {} is watched already", signal);
  }
  struct sigaction action = {};
  action.sa_handler = remember;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  if (::sigaction(signal, &action, &old_->action) != 0) {
    watched_signals[static_cast<size_t>(signal)].store(0);
    fail(ErrorKind::invalid, "signal {} cannot be watched", signal);
  }
}

SignalWatch::~SignalWatch() {
  ::sigaction(signal_, &old_->action, nullptr);
  watched_signals[static_cast<size_t>(signal_)].store(0);
}

bool SignalWatch::came() const { return watched_signals[static_cast<size_t>(signal_)].load() == 2; }

ExitWatch::ExitWatch(const TrainArguments& arguments, const FileSystem& files,
                     Clock::time_point start)
    : arguments_(arguments), files_(files), start_(start) {
  if (arguments.exit_signal_handler) {
    signal_ = std::make_unique<SignalWatch>(signal_number(arguments.exit_signal));
  }
}

bool ExitWatch::is_signalled() const { return signal_ && signal_->came(); }

bool ExitWatch::is_out_of_time(Clock::time_point now) const {
  const auto& limit = arguments_.exit_duration_in_mins;
  return limit && minutes(now) > static_cast<double>(*limit);
}

bool ExitWatch::is_to_end(Clock::time_point now) const {
  return is_signalled() || is_out_of_time(now);
}

ExitSigns ExitWatch::look(int64_t iteration, Clock::time_point now) const {
  ExitSigns signs;
  signs.signalled = is_signalled();
  signs.out_of_time = is_out_of_time(now);
  if (arguments_.trigger_path.empty() || iteration % arguments_.log_interval != 0) return signs;
  signs.save_trigger = is_there(arguments_.save_trigger);
  signs.exit_trigger = is_there(arguments_.exit_trigger);
  return signs;
}

// A folder of the name is none: it may hold checkpoints. Where it cannot be looked (a file server
// that is away for a moment), there is none yet.
bool ExitWatch::is_there(const std::string& name) const {
  try {
    return files_.status(join(arguments_.trigger_path, name)).kind == PathKind::file;
  } catch (const Error&) {
    return false;
  }
}

double ExitWatch::minutes(Clock::time_point now) const {
  return std::chrono::duration<double>(now - start_).count() / 60;
}

void ExitWatch::remove_save_trigger() const {
  if (!is_there(arguments_.save_trigger)) return;
  files_.remove_all(join(arguments_.trigger_path, arguments_.save_trigger));
}

void ExitWatch::put_exit_trigger_away() const {
  if (!is_there(arguments_.exit_trigger)) return;
  const std::string path = join(arguments_.trigger_path, arguments_.exit_trigger);
  files_.rename(path, path + std::string(kObeyed));
}

}  // namespace ferry
