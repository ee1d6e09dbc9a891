// How processes that know an address find each other: rank 0 listens there, the others come.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "ckpt/group/tcp/meeting_place.h"
#include "ckpt/group/tcp/socket.h"
#include "ckpt/group/wait_reports.h"

namespace ferry {

/// What ranks know of each other when all have come.
struct Meeting {
  struct Rank {
    std::string host;
    int port = 0;  // where it listens
  };
  std::vector<Rank> ranks;
  uint64_t token = 0;  // of this meeting: who connects has to know it
  TcpSocket listener;  // this rank's
  /// On rank 0: one to each other rank, by rank (its own is empty). On others: one to rank 0.
  std::vector<TcpSocket> lifelines;
};

/// All ranks call it alike. `door`: where rank 0 listens already, of whose port `place` was made;
/// others leave it empty, and so may rank 0 where the port was chosen by somebody else. exhausted
/// when some do not come within `patience`, naming them; mismatch for a rank of another size or
/// job, or one that is there twice. While it waits, `say` hears for whom.
Meeting meet(const MeetingPlace& place, std::chrono::seconds patience, const SayWait& say,
             TcpSocket door = {});

}  // namespace ferry
