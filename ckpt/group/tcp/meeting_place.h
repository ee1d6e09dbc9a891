// Where the processes of a run find each other, as their environment says.
//
// Source: PyTorch's environment for distributed programs (MASTER_ADDR, MASTER_PORT, RANK,
// WORLD_SIZE), which torchrun, Slurm scripts and Kubernetes' operators set.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace ferry {

struct MeetingPlace {
  std::string host;  // of rank 0
  int port = 0;
  int rank = 0, size = 1;
  std::string job;  // known from the scheduler: ranks of another job are turned away
};

/// What the environment says of it. Nothing where none of the four variables is there, where they
/// speak of one process, or where a launcher of MPI has started several, which has ways of its own
/// (but not where it has started torchrun).
/// Where torchrun's agent itself listens at MASTER_PORT (TORCHELASTIC_USE_AGENT_STORE), the port is
/// the next one. invalid for values that cannot be, and where some of the variables are there and
/// others are not, naming both: each process would do all the work.
std::optional<MeetingPlace> meeting_place(
    const std::function<const char*(const char* variable)>& environment);

}  // namespace ferry
