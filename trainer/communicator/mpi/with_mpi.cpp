#include "trainer/communicator/mpi/mpi_links.h"
#include "trainer/communicator/mpi/process_links.h"

namespace ferry {

// MPI is not initialized for a single process.
std::shared_ptr<Links> process_links(const std::shared_ptr<Group>& group) {
  if (group->size() == 1) return thread_links({group}).front();
  return mpi_links(MPI_COMM_WORLD, group);
}

}  // namespace ferry
