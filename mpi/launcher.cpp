#include "mpi/launcher.h"

#include <cstdlib>

namespace ferry {

Launcher launcher() {
  constexpr struct {
    const char* variable;
    const char* name;
  } kVariables[] = {{"OMPI_COMM_WORLD_SIZE", "mpirun"},
                    {"PMI_SIZE", "mpiexec"},
                    {"SLURM_STEP_NUM_TASKS", "srun"}};
  for (const auto& [variable, name] : kVariables) {
    const char* value = std::getenv(variable);
    const int processes = value ? std::atoi(value) : 0;
    if (processes > 1) return {name, processes};
  }
  return {};
}

}  // namespace ferry
