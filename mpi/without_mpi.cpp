#include "ckpt/base/error.h"
#include "mpi/launcher.h"
#include "mpi/process_group.h"

namespace ferry {

std::shared_ptr<Group> process_group() {
  if (const Launcher started_by = launcher(); started_by.processes > 1) {
    fail(ErrorKind::unsupported,
         "{} started {} processes, and this ferry was built without MPI; start one, or build with "
         "MPI installed",
         started_by.name, started_by.processes);
  }
  return lone_group();
}

}  // namespace ferry
