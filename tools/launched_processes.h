// The processes of one launch of the program.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "ckpt/group/group.h"
#include "ckpt/group/tcp/mesh.h"
#include "tools/error_report.h"
#include "trainer/communicator/links.h"

namespace ferry::tool {

/// Joined once, by a command that runs on several processes. Only rank 0 reports errors.
class LaunchedProcesses {
 public:
  enum class Output { of_the_first, of_all };

  /// The processes that an MPI launcher started, else this one alone.
  std::shared_ptr<Group> join(Output output);
  /// The same for processes that know rank 0's address (MASTER_ADDR); others as join().
  std::shared_ptr<Group> join_by_address(Output output);
  /// Between the processes of `group`, which one of these returned.
  std::shared_ptr<Links> links(const std::shared_ptr<Group>& group) const;

  /// Throws what ended another one's work.
  void wait_for_all();
  /// For a handler of exceptions that this rank alone may have met.
  void abort() noexcept;
  /// Call last: a process with an error that rank 0 could not report does so with `reporter`.
  void end(int exit_code, const Reporter& reporter);

 private:
  void end_mesh(const Reporter& reporter);
  SayWait say_wait() const;

  std::shared_ptr<Group> group_;
  std::shared_ptr<TcpMesh> mesh_;
  std::atomic<int> silenced_ = -1;  // what restore_standard_error() wants
};

/// The launcher whose environment variables announce so many processes.
std::string launcher_of(int processes);

}  // namespace ferry::tool
