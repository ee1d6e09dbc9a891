// How much host memory the ranks of a run may use for staging saves.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ckpt/group/group.h"

namespace ferry {

// Memory that is still available on this host.

/// Bytes that can be allocated without swapping: MemAvailable, or less if the process's control
/// groups leave less (page cache counts as free). UINT64_MAX if unknown. `root` replaces "/".
uint64_t available_host_memory(const std::string& root = "");

/// The machine's name, the same for all processes on it.
std::string host_name();

/// One rank's share of staging memory. The ranks of a host share its memory in proportion to their
/// needs.
struct StagingRoom {
  uint64_t needed = 0;  // bytes for a whole copy
  uint64_t bytes = 0;   // granted to the rank; if less than needed, saves go in pieces
  /// About the whole run, the same on all ranks:
  int64_t ranks_in_pieces = 0;
  uint64_t most_needed = 0;    // maximum over ranks
  uint64_t least_bytes = 0;    // minimum over the ranks in pieces
  bool is_host_short = false;  // whether it is a host that lacks memory
};

/// The part of a host's available memory that may be used for staging: an eighth stays free.
constexpr uint64_t for_staging(uint64_t available) { return available - available / 8; }

/// `most_bytes`: the limit per rank from the arguments. All ranks of the group call it, each with
/// its available_host_memory().
StagingRoom staging_room(Group& group, uint64_t needed, std::optional<uint64_t> most_bytes,
                         uint64_t available);

/// What a run logs about it before its first step; empty if nothing is staged.
std::string staging_text(const StagingRoom& room);

}  // namespace ferry
