// Links between the processes of an MPI communicator.
#pragma once

#include <mpi.h>

#include <memory>

#include "trainer/communicator/links.h"

namespace ferry {

/// MPI counts are ints: longer transfers are split into pieces of this size.
constexpr size_t kLinkPieceBytes = size_t{1} << 30;

/// Links of the communicator's processes, which all must call it (it calls MPI_Comm_dup). `group`
/// has the same processes and ranks: its abort ends waiting calls. Must be destroyed before
/// MPI_Finalize.
///
/// unsupported unless MPI was initialized with MPI_THREAD_MULTIPLE: another thread (an
/// AsyncSaver's) may use the group at the same time. io when MPI reports an error.
std::shared_ptr<Links> mpi_links(MPI_Comm communicator, std::shared_ptr<Group> group,
                                 size_t piece_bytes = kLinkPieceBytes);

}  // namespace ferry
