// Links between the processes of an MPI communicator.
#pragma once

#include <mpi.h>

#include <memory>

#include "trainer/communicator/links.h"

namespace ferry {

/// MPI counts by ints: longer transfers are made of pieces of so many bytes.
constexpr size_t kLinkPieceBytes = size_t{1} << 30;

/// Of the communicator's processes, which all call it, as they do MPI_Comm_dup. `group` is a group
/// of the same processes with the same ranks: who waits hears of its abort. Goes before MPI is
/// finalised.
///
/// unsupported unless MPI was initialised with MPI_THREAD_MULTIPLE: the group may be called by
/// another thread meanwhile (an AsyncSaver's). Error(io) when MPI reports an error.
std::shared_ptr<Links> mpi_links(MPI_Comm communicator, std::shared_ptr<Group> group,
                                 size_t piece_bytes = kLinkPieceBytes);

}  // namespace ferry
