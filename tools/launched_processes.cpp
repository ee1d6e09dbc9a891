#include "tools/launched_processes.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "ckpt/group/group.h"
#include "ckpt/group/mpi/launcher.h"
#include "ckpt/group/mpi/process_group.h"
#include "tools/terminal/output.h"
#include "tools/terminal/text.h"
#include "trainer/communicator/mpi/process_links.h"
#include "trainer/communicator/tcp/tcp_links.h"

namespace ferry::tool {
namespace {

constexpr std::chrono::seconds kPatience{600};  // until ranks have met

}  // namespace

// Every rank prints this, even one that is silenced.
SayWait LaunchedProcesses::say_wait() const {
  return [this](const std::string& line) {
    print_past_silence(silenced_, fmt::format("ferry: {}\n", printable(line)));
  };
}

std::shared_ptr<Group> LaunchedProcesses::join(Output output) {
  group_ = process_group(say_wait());
  if (group_->rank() == 0) return group_;
  silenced_ = silence_standard_error();
  set_last_words(silenced_);
  if (output == Output::of_the_first) silence_standard_output();
  return group_;
}

std::shared_ptr<Group> LaunchedProcesses::join_by_address(Output output) {
  const auto place = meeting_place(process_environment());
  if (!place) return join(output);
  // Before they have met there is no rank 0 to report errors.
  mesh_ = std::make_shared<TcpMesh>(*place, kPatience, say_wait());
  if (place->rank != 0) silenced_ = silence_standard_error();
  group_ = message_group(tcp_transport(mesh_));
  return group_;
}

std::shared_ptr<Links> LaunchedProcesses::links(const std::shared_ptr<Group>& group) const {
  return mesh_ ? tcp_links(mesh_, group) : process_links(group);
}

void LaunchedProcesses::wait_for_all() {
  if (group_) group_->barrier();
}

void LaunchedProcesses::abort() noexcept {
  if (group_) abort_with_current_exception(*group_);
}

void LaunchedProcesses::end(int exit_code, const Reporter& reporter) {
  if (!group_) return;
  if (mesh_) return end_mesh(reporter);
  end_process_group(std::move(group_), exit_code, [&](const Error& error) {
    restore_standard_error(silenced_);
    reporter.report(error.kind(), error.what());
  });
}

// Where rank 0 has gone, each rank reports what it knows.
void LaunchedProcesses::end_mesh(const Reporter& reporter) {
  group_.reset();
  mesh_->conclude(std::chrono::seconds(5));
  const auto failure = mesh_->failure();
  if (mesh_->rank() == 0 || !failure || !failure->is_lost || failure->rank != 0) return;
  restore_standard_error(silenced_);
  reporter.report(failure->error.kind(), fmt::format("rank 0 {}", failure->error.what()));
}

std::string launcher_of(int processes) {
  for (const Launcher& launcher : launchers(process_environment())) {
    if (launcher.processes == processes) return launcher.name;
  }
  return "the launcher";
}

}  // namespace ferry::tool
