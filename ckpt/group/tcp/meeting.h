// How processes that know an address find each other: rank 0 listens there, the others come.
//
// Source: PyTorch's environment for distributed programs (MASTER_ADDR, MASTER_PORT, RANK,
// WORLD_SIZE), which torchrun, Slurm scripts and Kubernetes' operators set.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/group/tcp/socket.h"
#include "ckpt/group/wait_reports.h"

namespace ferry {

struct MeetingPlace {
  std::string host;  // of rank 0
  int port = 0;
  int rank = 0, size = 1;
  std::string job;  // told by the scheduler: ranks of another job are turned away
};

/// What the environment says of it. Nothing where none of the four variables is there, where they
/// speak of one process, or where a launcher of MPI has started several, which has ways of its own
/// (but not where it has started torchrun).
/// Where torchrun's agent itself listens at MASTER_PORT (TORCHELASTIC_USE_AGENT_STORE), the port is
/// the next one. invalid for values that cannot be, and where some of the variables are there and
/// others are not, naming both: each process would do all the work.
std::optional<MeetingPlace> meeting_place(
    const std::function<const char*(const char* variable)>& environment);

/// What ranks know of each other when all have come.
struct Meeting {
  struct Rank {
    std::string host;
    int port = 0;  // where it listens
  };
  std::vector<Rank> ranks;
  uint64_t token = 0;  // of this meeting: who connects has to know it
  TcpSocket listener;  // this rank's
  /// Of rank 0: one to each other rank, by rank (its own is empty). Of others: one to rank 0.
  std::vector<TcpSocket> lifelines;
};

/// All ranks call it alike. exhausted when some do not come within `patience`, naming them;
/// mismatch for a rank of another size or job, or one that is there twice. While it waits, `say`
/// hears for whom.
Meeting meet(const MeetingPlace& place, std::chrono::seconds patience, const SayWait& say);

}  // namespace ferry
