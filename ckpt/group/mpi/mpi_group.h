// The processes of an MPI communicator as a group.
//
//   int provided;
//   MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
//   {
//     AsyncSaver saver(posix_file_system(), "runs/a", mpi_group(MPI_COMM_WORLD));
//     ...
//   }
//   MPI_Finalize();
#pragma once

#include <mpi.h>

#include <memory>

#include "ckpt/group/group.h"

namespace ferry {

/// Which threads of a process call the operations, and abort(), of the group and of those that are
/// split from it.
enum class GroupThreads {
  any,  // also while others use MPI, as an AsyncSaver does: needs MPI_THREAD_MULTIPLE
  one,  // the one that calls MPI; or several, of which never two are in MPI (MPI_THREAD_SERIALIZED)
};

/// A group of the communicator's processes, with their ranks. All call it, as they do MPI_Comm_dup:
/// it works on a duplicate of its own, which it frees when the group and all that were split from
/// it are gone. The caller initialises MPI before and finalises it after that.
///
/// unsupported when MPI is not running or does not serve `threads`, invalid for no communicator or
/// one between two groups: on all processes alike.
///
/// Error(io) when MPI reports an error of the group's messages; what the caller's own communicators
/// do with errors does not matter. A process that dies takes the others with it by the launcher.
///
/// After Group::abort() the end of the group waits up to 5 seconds for that of the other ranks.
/// Where all come, MPI can be finalised as ever; where a rank does not, MPI_Finalize() would wait
/// for it, too: end the program by MPI_Abort(). Who does not know whether all come does that in any
/// case.
std::shared_ptr<Group> mpi_group(MPI_Comm communicator, GroupThreads threads = GroupThreads::any);

}  // namespace ferry
