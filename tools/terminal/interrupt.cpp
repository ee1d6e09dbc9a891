#include "tools/terminal/interrupt.h"

#include <csignal>

#include "ckpt/base/error.h"

namespace ferry::tool {
namespace {

// A signal handler can reach nothing but what is global.
std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
struct sigaction former[3];

void on_signal(int) { interrupted.store(true, std::memory_order_relaxed); }

}  // namespace

InterruptScope::InterruptScope() {
  interrupted = false;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigemptyset(&action.sa_mask);
  for (int i = 0; i < 3; ++i) {
    sigaction(kSignals[i], nullptr, &former[i]);
    if (former[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);  // nohup
  }
}

InterruptScope::~InterruptScope() {
  for (int i = 0; i < 3; ++i) sigaction(kSignals[i], &former[i], nullptr);
}

const std::atomic<bool>* InterruptScope::flag() const noexcept { return &interrupted; }

void InterruptScope::check() const {
  if (interrupted) fail(ErrorKind::cancelled, "stopped by a signal");
}

}  // namespace ferry::tool
