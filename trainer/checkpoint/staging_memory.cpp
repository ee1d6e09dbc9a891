#include "trainer/checkpoint/staging_memory.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "ckpt/group/wire.h"

namespace ferry {

namespace {

std::optional<uint64_t> number_at_start(std::string_view text) {
  text.remove_prefix(std::min(text.size(), text.find_first_not_of(" \t")));
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

// The number after `key` on the line that starts with it.
std::optional<uint64_t> value_of(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key)) return number_at_start(std::string_view(line).substr(key.size()));
  }
  return std::nullopt;
}

// Files of a control group with its memory limit and usage.
struct GroupFiles {
  const char *limit, *used, *statistics, *cached;
};
constexpr GroupFiles kVersion2{"/memory.max", "/memory.current", "/memory.stat", "inactive_file "};
constexpr GroupFiles kVersion1{"/memory.limit_in_bytes", "/memory.usage_in_bytes", "/memory.stat",
                               "total_inactive_file "};

uint64_t left_in_group(const std::string& folder, const GroupFiles& files) {
  const auto limit = value_of(folder + files.limit, "");
  const auto used = value_of(folder + files.used, "");
  if (!limit || !used) return UINT64_MAX;  // "max" is not a number
  const uint64_t cached = value_of(folder + files.statistics, files.cached).value_or(0);
  const uint64_t held = *used - std::min(*used, cached);
  return *limit - std::min(*limit, held);
}

// The minimum over the group and its ancestors. In a container, which may not see its ancestors,
// the root is its own group.
uint64_t left_in_groups(const std::string& root, std::string path, const GroupFiles& files) {
  uint64_t left = left_in_group(root, files);
  while (path.size() > 1 && path[0] == '/') {
    left = std::min(left, left_in_group(root + path, files));
    path.resize(path.rfind('/'));
  }
  return left;
}

uint64_t left_in_own_groups(const std::string& root) {
  uint64_t left = UINT64_MAX;
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "number:controllers:/path"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") {
      left = std::min(left, left_in_groups(root + "/sys/fs/cgroup", path, kVersion2));
    } else if (controllers.find(",memory,") != std::string::npos) {
      left = std::min(left, left_in_groups(root + "/sys/fs/cgroup/memory", path, kVersion1));
    }
  }
  return left;
}

}  // namespace

uint64_t available_host_memory(const std::string& root) {
  const auto kibibytes = value_of(root + "/proc/meminfo", "MemAvailable:");
  const uint64_t available = kibibytes ? *kibibytes << 10 : UINT64_MAX;
  return std::min(available, left_in_own_groups(root));
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

namespace {

struct RankRoom {
  std::string host;
  uint64_t needed = 0, most = 0, available = 0;
};

struct HostRoom {
  double needed = 0;  // by its ranks, within the limit of the arguments
  uint64_t available = UINT64_MAX;
};

uint64_t bytes_of(const RankRoom& rank, const HostRoom& host) {
  const auto has = static_cast<double>(for_staging(host.available));
  if (host.needed <= has) return rank.most;
  const double share = has * (static_cast<double>(rank.most) / host.needed);
  // A save needs at least some memory to pass through.
  return std::min(rank.most, std::max<uint64_t>(static_cast<uint64_t>(share), 1 << 20));
}

double gib(uint64_t bytes) { return static_cast<double>(bytes) / (uint64_t{1} << 30); }

}  // namespace

StagingRoom staging_room(Group& group, uint64_t needed, std::optional<uint64_t> most_bytes,
                         uint64_t available) {
  Packer packer;
  packer.text(host_name()).number(needed);
  packer.number(std::min(needed, most_bytes.value_or(needed))).number(available);
  std::vector<RankRoom> ranks;
  std::map<std::string, HostRoom> hosts;
  for (const std::string& bytes : group.exchange(packer.take())) {
    Unpacker unpacker(bytes);
    RankRoom& rank = ranks.emplace_back();
    rank.host = unpacker.text();
    rank.needed = unpacker.number();
    rank.most = unpacker.number();
    rank.available = unpacker.number();
    HostRoom& host = hosts[rank.host];
    host.needed += static_cast<double>(rank.most);
    host.available = std::min(host.available, rank.available);
  }
  StagingRoom room;
  room.needed = needed;
  room.least_bytes = UINT64_MAX;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const RankRoom& rank = ranks[i];
    const uint64_t bytes = bytes_of(rank, hosts[rank.host]);
    if (static_cast<int>(i) == group.rank()) room.bytes = bytes;
    room.most_needed = std::max(room.most_needed, rank.needed);
    if (bytes >= rank.needed) continue;
    ++room.ranks_in_pieces;
    room.least_bytes = std::min(room.least_bytes, bytes);
    room.is_host_short = room.is_host_short || bytes < rank.most;
  }
  return room;
}

std::string staging_text(const StagingRoom& room) {
  if (room.most_needed == 0) return {};
  std::string text = fmt::format("staging: saves take up to {:.3f} GiB of host memory per rank\n",
                                 gib(room.most_needed));
  if (room.ranks_in_pieces == 0) return text;
  return text + fmt::format(
                    "staging: {} allows less, from {:.3f} GiB per rank, on {} ranks: their saves "
                    "go in pieces, and a step waits until the last piece is copied\n",
                    room.is_host_short ? "a host's memory" : "--staging-memory",
                    gib(room.least_bytes), room.ranks_in_pieces);
}

}  // namespace ferry
