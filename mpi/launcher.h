// What launchers tell their processes by environment variables.
#pragma once

#include <string>

namespace ferry {

struct Launcher {
  std::string name;  // empty: none that is known
  int processes = 1;
};

/// Of Open MPI, MPICH and Intel MPI (PMI), and Slurm's steps.
Launcher launcher();

}  // namespace ferry
