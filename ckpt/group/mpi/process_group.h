// The processes that a launcher (mpirun, srun) started together, as ranks of a group.
#pragma once

#include <memory>

#include "ckpt/group/group.h"

namespace ferry {

/// The group of all of them where there are several, and ferry was built with MPI; else a group of
/// one. Once a process. While it lives, MPI is initialised; exchange() belongs to the thread that
/// made it. A process that dies takes the others with it, by the launcher.
///
/// unsupported when a launcher started several that do not find each other, as this build has no
/// MPI or another than the launcher's: each would do all the work, in each other's way.
std::shared_ptr<Group> process_group();

}  // namespace ferry
