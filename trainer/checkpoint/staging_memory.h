// How much memory of their host the ranks of a run may take to copy aside what they save.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ckpt/group/group.h"

namespace ferry {

// How much memory this machine still has for processes of this one's kind.

/// Bytes that can be taken without others being pushed out: what the kernel calls available, or
/// what the control groups that the process is in leave, where that is less (memory that files are
/// cached in counts as free). UINT64_MAX where nothing tells. `root` stands for "/".
uint64_t available_host_memory(const std::string& root = "");

/// The machine's name, the same for all processes on it.
std::string host_name();

/// Of one rank. Those of a host share what it has by what they want.
struct StagingRoom {
  uint64_t wanted = 0;  // bytes for copies of all
  uint64_t bytes = 0;   // that the rank may take; less than it wants: saves go in pieces
  /// Of the run, for all ranks alike.
  int64_t ranks_in_pieces = 0;
  uint64_t most_wanted = 0;    // of a rank, of those that want most
  uint64_t least_bytes = 0;    // of those in pieces, the least that one may take
  bool is_host_short = false;  // of those, some host has less than its ranks want
};

/// What a host that has so much available gives to copies: an eighth stays free.
constexpr uint64_t for_staging(uint64_t available) { return available - available / 8; }

/// `most_bytes`: that the arguments let a rank take. All ranks of the group call it, each with what
/// is available_host_memory() to it.
StagingRoom staging_room(Group& group, uint64_t wanted, std::optional<uint64_t> most_bytes,
                         uint64_t available);

/// What a run says of it before its first step; empty where nothing is copied.
std::string staging_text(const StagingRoom& room);

}  // namespace ferry
