// The ranks that save together, as Python's processes.
#pragma once

#include <nanobind/nanobind.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>

#include "ckpt/group/group.h"

namespace ferry::python {

/// Whose threads a forked child does not have: there nothing of it may be used or destroyed.
class OfThisProcess {
 public:
  bool is_here() const noexcept { return ::getpid() == process_; }
  /// invalid in another process, naming `what`.
  void check_here(const char* what) const;

 private:
  pid_t process_ = ::getpid();
};

/// Calls `work` on a thread of its own; false when it has not returned within `time`. Then it goes
/// on, and what it uses has to stay.
bool run_within(std::chrono::milliseconds time, std::function<void()> work);

/// A group as Python holds it. The group is closed when this is destroyed, in the process that
/// created it.
class PythonGroup {
 public:
  explicit PythonGroup(std::shared_ptr<Group> group) : group_(std::move(group)) {}
  ~PythonGroup() { close(std::chrono::seconds(0)); }
  PythonGroup(const PythonGroup&) = delete;
  PythonGroup& operator=(const PythonGroup&) = delete;

  int rank() const { return group()->rank(); }
  int size() const { return group()->size(); }
  const std::shared_ptr<Group>& group() const;

  /// Leaves the group, waiting for the other ranks to do so for at most that long.
  void close(std::chrono::milliseconds patience) noexcept;

 private:
  OfThisProcess process_;
  std::shared_ptr<Group> group_;
};

}  // namespace ferry::python
