#include "tests/fuzz/watch.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <thread>

namespace ferry::test {
namespace {

constexpr int kTooMuchMemory = 77;
constexpr auto kPause = std::chrono::milliseconds(20);
// A process that waits uses no processor: that much longer by the clock is a hang as well. Long, as
// whoever shares the machine may hold the process up.
constexpr double kClockFactor = 400;

double processor_seconds(pid_t process) {
  clockid_t clock;
  timespec time{};
  if (clock_getcpuclockid(process, &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Ends a child whose input takes too long.
class Clock {
 public:
  Clock(pid_t child, const WatchLimits& limits) : child_(child), limits_(limits) {}

  bool is_late(uint64_t begun) {
    const auto now = std::chrono::steady_clock::now();
    const double used = processor_seconds(child_);
    if (begun != begun_) {
      begun_ = begun;
      since_ = now;
      used_before_ = used;
      return false;
    }
    const double waited = std::chrono::duration<double>(now - since_).count();
    return used - used_before_ > limits_.seconds || waited > kClockFactor * limits_.seconds;
  }

 private:
  pid_t child_;
  WatchLimits limits_;
  uint64_t begun_ = UINT64_MAX;
  std::chrono::steady_clock::time_point since_;
  double used_before_ = 0;
};

std::string describe(int status) {
  if (WIFSIGNALED(status)) return std::string("ended by ") + strsignal(WTERMSIG(status));
  if (WEXITSTATUS(status) == kTooMuchMemory) return "used more memory than allowed";
  return "ended with status " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

void check_memory(const WatchLimits& limits) {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  if (static_cast<uint64_t>(usage.ru_maxrss) * 1024 <= limits.memory_bytes) return;
  std::fprintf(stderr, "%ld MiB of memory in use\n", usage.ru_maxrss / 1024);
  std::_Exit(kTooMuchMemory);
}

Outcome run_watched(const std::function<void(Progress&)>& run, const WatchLimits& limits) {
  void* shared =
      mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return {.finding = "no shared memory"};
  Progress& progress = *new (shared) Progress;
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) return {.finding = "no process"};
  if (child == 0) {
    run(progress);
    std::exit(0);
  }
  Outcome outcome;
  Clock clock(child, limits);
  int status = 0;
  rusage usage{};
  while (wait4(child, &status, WNOHANG, &usage) == 0) {
    if (outcome.finding.empty() && clock.is_late(std::atomic_ref(progress.begun).load())) {
      outcome.finding = "took too long";
      kill(child, SIGKILL);
    }
    std::this_thread::sleep_for(kPause);
  }
  if (outcome.finding.empty() && status != 0) outcome.finding = describe(status);
  outcome.inputs = progress.begun;
  outcome.at_the_end = progress.begun == progress.done;
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  outcome.processor_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  munmap(shared, sizeof(Progress));
  return outcome;
}

}  // namespace ferry::test
