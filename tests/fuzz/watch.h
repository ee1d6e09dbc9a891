// Runs inputs in a process of its own and says what became of it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace ferry::test {

struct WatchLimits {
  double seconds = 5;  // of one input, of the processor's time
  uint64_t memory_bytes = uint64_t{1} << 30;
};

/// How far the process came. Shared with it.
struct Progress {
  uint64_t begun = 0;  // inputs; the last one is at work, or has failed
  uint64_t done = 0;
};

struct Outcome {
  std::string finding;      // empty: all went well
  uint64_t inputs = 0;      // that were begun
  bool at_the_end = false;  // the finding, when the last input was done
  double processor_seconds = 0;
};

/// Calls run(progress) in a child process; it counts every input up before and after it runs.
/// A finding is a death by signal, a status other than 0, an input that takes longer than allowed
/// and one whose memory passes the limit (with a sanitizer, at the end of the input only).
Outcome run_watched(const std::function<void(Progress&)>& run, const WatchLimits& limits);

/// To be called between inputs: ends the process when it has used more memory than allowed.
void check_memory(const WatchLimits& limits);

}  // namespace ferry::test
