// Which process of a run this one is, as its launcher says. The only place that reads the
// environment for that.
//
// Source: torchrun (torch/distributed/elastic), Open MPI and PMIx, MPICH's PMI, Slurm's srun; the
// coordinator of a Slurm job as jax's clusters/slurm_cluster.py chooses it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace ferry {

struct Launch {
  std::string launcher;  // "torchrun", "Open MPI", "PMI", "Slurm"; empty: this process is alone
  int64_t world_size = 1, rank = 0, local_rank = 0;
  int64_t local_world_size = 1;  // processes of this host
  std::string coordinator;       // host:port of rank 0; empty where the launcher tells none

  /// Ranks are threads of this process, whoever started it.
  bool is_alone() const { return world_size == 1; }
};

/// Value of a variable; nothing when it is not set.
using LaunchEnvironment = std::function<std::optional<std::string>(const std::string& name)>;
LaunchEnvironment launch_environment();

/// The first launcher of the list above that set its variables. invalid when what it set is no
/// number, or when two launchers disagree about world size or rank, naming both.
Launch detect_launch(const LaunchEnvironment& environment);

}  // namespace ferry
