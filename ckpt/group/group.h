// The ranks that do one thing together: threads of a process, or processes.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace ferry {

/// One rank's place among its fellows.
///
/// An implementation for processes is a broadcast of sizes and of bytes (MPI: MPI_Allgather and
/// MPI_Allgatherv on a communicator of its own, with MPI_THREAD_MULTIPLE where an AsyncSaver is
/// used beside other communication, which calls from a thread of its own).
class Group {
 public:
  virtual ~Group() = default;
  virtual int rank() const noexcept = 0;  // from 0
  virtual int size() const noexcept = 0;  // at least 1
  /// Gives `bytes` to all and returns everyone's, by rank. Every rank must call it equally often;
  /// returns when all have. One thread of a rank at a time. What it throws ends the group: no rank
  /// calls it again.
  virtual std::vector<std::string> exchange(std::string bytes) = 0;
};

/// A group of one.
std::shared_ptr<Group> lone_group();

/// Groups for `size` threads of this process, by rank. A rank whose object goes away breaks the
/// group: the others' exchange() throws Error(cancelled).
std::vector<std::shared_ptr<Group>> thread_groups(int size);

}  // namespace ferry
