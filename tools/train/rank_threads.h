// How many threads the kernels of a rank have.
#pragma once

#include <set>
#include <span>
#include <string>

#include "ckpt/group/group.h"

namespace ferry::tool {

/// A process, and the cores that it may run on.
struct ProcessCores {
  std::string host;
  std::set<int> cores;
};

/// This one.
ProcessCores process_cores();

/// The share of process `own` in the cores of its host: of each core, one part of as many as there
/// are processes that may run on it. At least 1.
int share_of_cores(std::span<const ProcessCores> processes, int own);

/// Threads for each of this process's `ranks`. `omp_num_threads` is OMP_NUM_THREADS, null if unset:
/// its first number counts (invalid unless from 1 to 1024). Without it ranks share the cores of
/// their host. All processes of the group call it.
int rank_threads(Group& processes, int ranks, const char* omp_num_threads);

/// How many processes of lower rank are on the same host. All processes of the group call it.
int number_on_host(Group& processes);

/// How many processes are on the same host. All processes of the group call it.
int processes_on_host(Group& processes);

}  // namespace ferry::tool
