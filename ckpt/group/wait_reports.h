// What a process says while it waits for others.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace ferry {

/// Takes a line without its end, on any thread. May be empty: nothing is said.
using SayWait = std::function<void(const std::string& line)>;

/// From its making to its end, a thread says what this process waits for and since when: first
/// within two seconds, then at growing intervals, at last once a minute. It does so while the
/// process itself is held by the system (a name that is being resolved, a host that does not
/// answer).
class WaitReports {
 public:
  enum class Often { once, again };

  /// `who` waits: "rank 1 of 4". `hint` is called once, before the first report, on a thread of its
  /// own that may outlive this object; its text is part of the reports from when it is known.
  WaitReports(SayWait say, std::string who, std::function<std::string()> hint = {});
  ~WaitReports();
  WaitReports(const WaitReports&) = delete;
  WaitReports& operator=(const WaitReports&) = delete;

  /// For what it waits from now on. Only of what is worth it is there more than one report.
  void set(std::string what, Often often = Often::again);

 private:
  struct Hint {
    mutable std::mutex mutex;
    std::string text;

    std::string known() const {
      const std::lock_guard lock(mutex);
      return text;
    }
  };

  void report();
  std::shared_ptr<const Hint> ask_hint() const;

  const SayWait say_;
  const std::string who_;
  const std::function<std::string()> hint_;
  const std::chrono::system_clock::time_point since_ = std::chrono::system_clock::now();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string what_;
  Often often_ = Often::again;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace ferry
