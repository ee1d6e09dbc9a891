// The processes that a launcher (mpirun, srun) started together, as ranks of a group: for a program
// that has MPI to itself. What is part of another program uses mpi_group.h.
#pragma once

#include <functional>
#include <memory>

#include "ckpt/group/group.h"
#include "ckpt/group/wait_reports.h"

namespace ferry {

/// The group of all of them where there are several, and ferry was built with MPI; else a group of
/// one. Once a process: initialises MPI, and finalises it when the last pointer is gone. Any thread
/// may call it where MPI has MPI_THREAD_MULTIPLE, else the one that made it. A process that dies
/// takes the others with it, by the launcher.
///
/// unsupported when a launcher started several that do not find each other, as this build has no
/// MPI or another than the launcher's: each would do all the work, in each other's way.
///
/// `say` hears of waiting for MPI to begin, which it does when all processes have come.
std::shared_ptr<Group> process_group(const SayWait& say = {});

/// Call last; `exit_code` is what it then exits with. Waits until all ranks are here. Where the
/// group was aborted it waits 5 seconds at most, and does not return if others are not here by
/// then: MPI_Abort(exit_code) ends all. Before that `report`(error) is called on the rank whose
/// error it was, which may be the only one that can print it, as rank 0 is not here.
void end_process_group(std::shared_ptr<Group> group, int exit_code,
                       std::function<void(const Error& error)> report);

}  // namespace ferry
