// Launchers (mpirun, srun, torchrun) found in the environment, and whether MPI sees the same ranks.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace ferry {

struct Launcher {
  std::string name;
  std::string variable;   // that shows it
  int processes = 1;      // that it started
  bool at_least = false;  // there may be more
};

/// The value of an environment variable, or null.
using Environment = std::function<const char*(const char* variable)>;

/// This process's own.
Environment process_environment();

/// All launchers that speak: those of Open MPI, MPICH and Intel MPI (PMI), Slurm's steps, PyTorch's
/// torchrun (of which MPI knows nothing), else PMIx. Several do where one was started inside
/// another, or by its means. What describes an allocation (SLURM_NTASKS of a batch script) or hosts
/// (WORLD_SIZE of Kubernetes) says nothing of processes.
std::vector<Launcher> launchers(const Environment& environment);

/// True when one of them started several processes, or may have.
bool started_several(const std::vector<Launcher>& launchers);

/// unsupported, with `what_to_do`, unless one of the launchers (if there are any) started as many
/// processes as act as one group: groups that do not know each other would each do all the work, in
/// each other's way.
void check_group_size(const std::vector<Launcher>& launchers, int group_size,
                      const std::string& what_to_do);

/// unsupported where a launcher started several processes: for what one alone has to do.
void require_one_process(const std::string& command);

}  // namespace ferry
