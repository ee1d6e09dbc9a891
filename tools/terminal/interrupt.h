// Ctrl-C while something is being written sets a flag that the engine polls.
#pragma once

#include <atomic>

namespace ferry::tool {

/// While one lives, SIGINT, SIGTERM and SIGHUP set its flag; another one half a second later, or
/// more, ends the process as it would without. At most one at a time.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();  // puts the former handlers back, unless a signal came
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  const std::atomic<bool>* flag() const noexcept;
  /// cancelled when the flag is set.
  void check() const;
};

}  // namespace ferry::tool
