#include "trainer/rank/staging/staging_room.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "ckpt/group/wire.h"
#include "trainer/rank/staging/host_memory.h"

namespace ferry {
namespace {

struct RankRoom {
  std::string host;
  uint64_t wanted = 0, most = 0, available = 0;
};

struct HostRoom {
  double wanted = 0;  // by its ranks, as far as the arguments let them
  uint64_t available = UINT64_MAX;
};

uint64_t bytes_of(const RankRoom& rank, const HostRoom& host) {
  const auto has = static_cast<double>(for_staging(host.available));
  if (host.wanted <= has) return rank.most;
  const double share = has * (static_cast<double>(rank.most) / host.wanted);
  // At least something that a save can pass through.
  return std::min(rank.most, std::max<uint64_t>(static_cast<uint64_t>(share), 1 << 20));
}

double gib(uint64_t bytes) { return static_cast<double>(bytes) / (uint64_t{1} << 30); }

}  // namespace

StagingRoom staging_room(Group& group, uint64_t wanted, std::optional<uint64_t> most_bytes,
                         uint64_t available) {
  Packer packer;
  packer.text(host_name()).number(wanted);
  packer.number(std::min(wanted, most_bytes.value_or(wanted))).number(available);
  std::vector<RankRoom> ranks;
  std::map<std::string, HostRoom> hosts;
  for (const std::string& bytes : group.exchange(packer.take())) {
    Unpacker unpacker(bytes);
    RankRoom& rank = ranks.emplace_back();
    rank.host = unpacker.text();
    rank.wanted = unpacker.number();
    rank.most = unpacker.number();
    rank.available = unpacker.number();
    HostRoom& host = hosts[rank.host];
    host.wanted += static_cast<double>(rank.most);
    host.available = std::min(host.available, rank.available);
  }
  StagingRoom room;
  room.wanted = wanted;
  room.least_bytes = UINT64_MAX;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const RankRoom& rank = ranks[i];
    const uint64_t bytes = bytes_of(rank, hosts[rank.host]);
    if (static_cast<int>(i) == group.rank()) room.bytes = bytes;
    room.most_wanted = std::max(room.most_wanted, rank.wanted);
    if (bytes >= rank.wanted) continue;
    ++room.ranks_in_pieces;
    room.least_bytes = std::min(room.least_bytes, bytes);
    room.is_host_short = room.is_host_short || bytes < rank.most;
  }
  return room;
}

std::string staging_text(const StagingRoom& room) {
  if (room.most_wanted == 0) return {};
  std::string text = fmt::format(
      "staging: copies of what a rank saves take up to {:.3f} GiB of its host's memory\n",
      gib(room.most_wanted));
  if (room.ranks_in_pieces == 0) return text;
  return text + fmt::format(
                    "staging: {} has room for less, from {:.3f} GiB a rank, on {} ranks: their "
                    "saves go in pieces, and a step waits until the last piece is copied\n",
                    room.is_host_short ? "a host's memory" : "--staging-memory",
                    gib(room.least_bytes), room.ranks_in_pieces);
}

}  // namespace ferry
