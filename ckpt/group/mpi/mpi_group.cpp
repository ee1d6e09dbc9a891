#include "ckpt/group/mpi/mpi_group.h"

#include <string_view>

#include "ckpt/group/group.h"
#include "ckpt/group/mpi/mpi_transport.h"

namespace ferry {
namespace {

std::string_view name_of_level(int level) {
  switch (level) {
    case MPI_THREAD_SINGLE:
      return "MPI_THREAD_SINGLE";
    case MPI_THREAD_FUNNELED:
      return "MPI_THREAD_FUNNELED";
    case MPI_THREAD_SERIALIZED:
      return "MPI_THREAD_SERIALIZED";
    default:
      return "MPI_THREAD_MULTIPLE";
  }
}

void check_running() {
  int is_initialized = 0, is_finalized = 0;
  MPI_Initialized(&is_initialized);
  MPI_Finalized(&is_finalized);
  if (!is_initialized || is_finalized) {
    fail(ErrorKind::unsupported,
         "MPI is {}: make the group between MPI_Init_thread and MPI_Finalize",
         is_finalized ? "already finalised" : "not initialised");
  }
}

void check_communicator(MPI_Comm communicator) {
  if (communicator == MPI_COMM_NULL) fail(ErrorKind::invalid, "MPI_COMM_NULL has no ranks");
  int is_between_groups = 0;
  MPI_Comm_test_inter(communicator, &is_between_groups);
  if (is_between_groups) {
    fail(ErrorKind::invalid,
         "an intercommunicator has ranks twice; give one that MPI_Intercomm_merge makes of it");
  }
}

// The least of all ranks, as all have to refuse alike.
void check_threads(MPI_Comm communicator, GroupThreads threads) {
  int level = MPI_THREAD_SINGLE, least = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  MPI_Allreduce(&level, &least, 1, MPI_INT, MPI_MIN, communicator);
  if (threads == GroupThreads::any && least < MPI_THREAD_MULTIPLE) {
    fail(ErrorKind::unsupported,
         "MPI was initialised with {}, and a group that any thread may call needs "
         "MPI_THREAD_MULTIPLE: ask MPI_Init_thread for it, or make the group with "
         "GroupThreads::one and call it from the thread that calls MPI (no AsyncSaver)",
         name_of_level(least));
  }
}

}  // namespace

std::shared_ptr<Group> mpi_group(MPI_Comm communicator, GroupThreads threads) {
  check_running();
  check_communicator(communicator);
  check_threads(communicator, threads);
  return message_group(std::make_shared<MpiTransport>(communicator));
}

}  // namespace ferry
