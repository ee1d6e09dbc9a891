#include "trainer/schedule/exit.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <csignal>

#include "ckpt/base/error.h"
#include "trainer/arguments/argument_value.h"

namespace ferry {

ExitSigns or_of(const ExitSigns& a, const ExitSigns& b) {
  return {a.signalled || b.signalled, a.out_of_time || b.out_of_time,
          a.save_trigger || b.save_trigger, a.exit_trigger || b.exit_trigger};
}

std::set<int64_t> phase_transitions(const std::string& text) {
  std::set<int64_t> iterations;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const char* first = text.data() + std::min(text.find_first_not_of(' ', at), end);
    int64_t iteration = 0;
    const auto [last, error] = std::from_chars(first, text.data() + end, iteration);
    if (error != std::errc() || iteration < 0 ||
        std::any_of(last, text.data() + end, [](char c) { return c != ' '; })) {
      fail(ErrorKind::invalid,
           "--phase-transition-iterations '{}': expected iterations such as 1000,2000", text);
    }
    iterations.insert(iteration);
    at = end + 1;
  }
  return iterations;
}

ExitDecision decide_exit(const TrainArguments& a, int64_t iteration, const ExitSigns& signs,
                         double minutes) {
  ExitDecision decision;
  const auto divides = [&](const std::optional<int64_t>& interval) {
    return interval.value_or(0) > 0 && iteration % *interval == 0;
  };
  const auto save = [&](SaveKind kind) {
    if (!a.save.empty() && decision.save == SaveKind::none) decision.save = kind;
  };
  const auto leave = [&](std::string why) {
    save(SaveKind::persistent);
    decision.exit = true;
    decision.why = std::move(why);
    decision.obeys_exit_trigger = signs.exit_trigger;
    return decision;
  };
  if (a.exit_signal_handler && signs.signalled) {
    return leave(fmt::format("exiting program after receiving {}.", a.exit_signal));
  }
  if (divides(a.save_interval)) {
    save(SaveKind::persistent);
  } else if (divides(a.non_persistent_save_interval)) {
    save(SaveKind::non_persistent);
  }
  if (a.exit_duration_in_mins && signs.out_of_time) {
    return leave(fmt::format("exiting program after {} minutes", python_real(minutes)));
  }
  if (divides(a.exit_interval) ||
      phase_transitions(a.phase_transition_iterations).count(iteration)) {
    return leave(fmt::format("exiting program at iteration {}", iteration));
  }
  if (a.trigger_path.empty() || !divides(a.log_interval)) return decision;
  if (signs.save_trigger && !a.save.empty()) {
    save(SaveKind::persistent);
    decision.remove_save_trigger = true;
  }
  if (signs.exit_trigger) {
    decision.exit = true;
    decision.obeys_exit_trigger = true;
    decision.why = fmt::format("exiting program at iteration {}: {}/{} is there", iteration,
                               a.trigger_path, a.exit_trigger);
  }
  return decision;
}

std::string datetime_line(const std::string& what, const std::string& date_and_time) {
  return fmt::format("[{}] datetime: {} \n", what, date_and_time);
}

namespace {

// A signal handler can only use static storage. 0: not watched, 1: watched, 2: received.
constexpr int kMostSignal = 64;
std::array<std::atomic<int>, kMostSignal + 1> watched_signals{};
static_assert(std::atomic<int>::is_always_lock_free);

void remember(int signal) { watched_signals[static_cast<size_t>(signal)].store(2); }

}  // namespace

struct SignalWatch::Old {
  struct sigaction action;
};

SignalWatch::SignalWatch(int signal) : signal_(signal), old_(std::make_unique<Old>()) {
  if (signal < 1 || signal > kMostSignal) fail(ErrorKind::invalid, "{} is not a signal", signal);
  int free = 0;
  if (!watched_signals[static_cast<size_t>(signal)].compare_exchange_strong(free, 1)) {
    fail(ErrorKind::invalid, "signal {} is already watched", signal);
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

ExitSigns ExitWatch::observe(int64_t iteration, Clock::time_point now) const {
  ExitSigns signs;
  signs.signalled = is_signalled();
  signs.out_of_time = is_out_of_time(now);
  if (arguments_.trigger_path.empty() || iteration % arguments_.log_interval != 0) return signs;
  signs.save_trigger = is_there(arguments_.save_trigger);
  signs.exit_trigger = is_there(arguments_.exit_trigger);
  return signs;
}

// A folder of that name does not count: it may hold checkpoints. If the check fails (a file server
// that is temporarily unavailable), there is no trigger yet.
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
