#include <fmt/format.h>
#include <mpi.h>

#include <chrono>
#include <thread>
#include <utility>

#include "ckpt/group/group.h"
#include "ckpt/group/mpi/launcher.h"
#include "ckpt/group/mpi/mpi_transport.h"
#include "ckpt/group/mpi/process_group.h"

namespace ferry {
namespace {

constexpr std::chrono::seconds kPatience{5};

class RunningMpi {
 public:
  // What the process does with it besides may take place on another thread.
  RunningMpi(const SayWait& say, const Launcher& launcher) {
    WaitReports reports(say, "this process");
    reports.set(fmt::format("for MPI to begin, with all processes that {} starts ({}={})",
                            launcher.name, launcher.variable, launcher.processes));
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  }
  ~RunningMpi() { MPI_Finalize(); }
  RunningMpi(const RunningMpi&) = delete;
  RunningMpi& operator=(const RunningMpi&) = delete;
};

// What the pointer to the group of all processes does at last.
class Ending {
 public:
  Ending(std::shared_ptr<RunningMpi> mpi, std::shared_ptr<MpiTransport> transport,
         std::shared_ptr<Group> group)
      : mpi_(std::move(mpi)), transport_(std::move(transport)), group_(std::move(group)) {}

  void prepare(int exit_code, std::function<void(const Error&)> report) {
    exit_code_ = exit_code;
    report_ = std::move(report);
  }

  void operator()(Group*) {
    if (!transport_->conclude(kPatience)) end_all();
    group_.reset();
    transport_.reset();
    mpi_.reset();
  }

 private:
  void end_all() {
    const auto failure = transport_->failure();
    if (failure && failure->rank == transport_->rank()) {
      if (!transport_->rank_0_is_here() && report_) report_(failure->error);
    } else {
      std::this_thread::sleep_for(std::chrono::seconds(1));  // whose error it is comes first
    }
    MPI_Abort(MPI_COMM_WORLD, exit_code_);
  }

  std::shared_ptr<RunningMpi> mpi_;
  std::shared_ptr<MpiTransport> transport_;
  std::shared_ptr<Group> group_;
  int exit_code_ = 1;
  std::function<void(const Error&)> report_;
};

}  // namespace

// A program that is started alone does without MPI, which takes a while to begin.
std::shared_ptr<Group> process_group(const SayWait& say) {
  const std::vector<Launcher> started_by = launchers(process_environment());
  if (!started_several(started_by)) return lone_group();
  const auto mpi = std::make_shared<RunningMpi>(say, started_by.front());
  const auto transport = std::make_shared<MpiTransport>(MPI_COMM_WORLD);
  check_group_size(
      started_by, transport->size(),
      "Use the launcher of the MPI that ferry was built with (of Slurm, srun --mpi=pmix or "
      "another of srun --mpi=list); ranks of ferry train also find each other by MASTER_ADDR, "
      "MASTER_PORT, RANK and WORLD_SIZE");
  const std::shared_ptr<Group> group = message_group(transport);
  return {group.get(), Ending(mpi, transport, group)};
}

void end_process_group(std::shared_ptr<Group> group, int exit_code,
                       std::function<void(const Error& error)> report) {
  Ending* const ending = std::get_deleter<Ending>(group);
  if (ending) ending->prepare(exit_code, std::move(report));
}

}  // namespace ferry
