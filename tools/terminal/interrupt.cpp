#include "tools/terminal/interrupt.h"

#include <csignal>
#include <cstdint>
#include <ctime>

#include "ckpt/base/error.h"

namespace ferry::tool {
namespace {

// A signal handler can reach nothing but what is global.
std::atomic<bool> interrupted{false};
std::atomic<int64_t> first_signal{0};  // in milliseconds; 0: none came yet
static_assert(std::atomic<bool>::is_always_lock_free);
static_assert(std::atomic<int64_t>::is_always_lock_free);

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
struct sigaction former[3];

int64_t milliseconds() {
  struct timespec now {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{1000} * now.tv_sec + now.tv_nsec / 1000000 + 1;
}

// A second signal ends the program at once. Launchers may send the same signal twice: `timeout`
// signals the process and then its group.
void on_signal(int signal) {
  constexpr int64_t kSameSignal = 500;
  const int64_t now = milliseconds();
  int64_t first = 0;
  if (first_signal.compare_exchange_strong(first, now)) {
    interrupted.store(true, std::memory_order_relaxed);
  } else if (now - first >= kSameSignal) {
    ::signal(signal, SIG_DFL);
    ::raise(signal);
  }
}

}  // namespace

InterruptScope::InterruptScope() {
  interrupted = false;
  first_signal = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (int i = 0; i < 3; ++i) {
    struct sigaction now {};
    sigaction(kSignals[i], nullptr, &now);
    if (now.sa_handler == on_signal) continue;
    former[i] = now;
    if (now.sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);  // nohup
  }
}

// After a signal the handler stays: a second one during shutdown would otherwise kill the program
// before it has printed its message and returned its exit code.
InterruptScope::~InterruptScope() {
  if (interrupted) return;
  for (int i = 0; i < 3; ++i) sigaction(kSignals[i], &former[i], nullptr);
}

const std::atomic<bool>* InterruptScope::flag() const noexcept { return &interrupted; }

void InterruptScope::check() const {
  if (interrupted) fail(ErrorKind::cancelled, "stopped by a signal");
}

}  // namespace ferry::tool
