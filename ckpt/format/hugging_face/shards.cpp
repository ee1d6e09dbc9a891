#include "ckpt/format/hugging_face/shards.h"

#include <fmt/format.h>

#include <set>
#include <utility>

namespace ferry {
namespace {

constexpr size_t kMostMissing = 1000;  // shards of one save that are named
constexpr size_t kMostDigits = 6;

}  // namespace

std::optional<ShardName> shard_name(const std::string& name, std::string_view end) {
  constexpr std::string_view kOf = "-of-", kDigits = "0123456789";
  const size_t of = name.rfind(kOf);
  if (name.starts_with('.') || !name.ends_with(end) || of == std::string::npos) return {};
  const size_t dash = name.find_last_not_of(kDigits, of - 1);
  const size_t total = of + kOf.size(), stop = name.find_first_not_of(kDigits, total);
  if (of == 0 || dash == std::string::npos || name[dash] != '-') return {};
  ShardName shard{name.substr(0, dash + 1), name.substr(of), 0, 0, of - dash - 1};
  if (shard.digits == 0 || shard.digits > kMostDigits || stop == total ||
      stop > total + kMostDigits)
    return {};
  shard.number = std::stoul(name.substr(dash + 1, shard.digits));
  shard.total = std::stoul(name.substr(total, stop - total));
  return shard;
}

std::map<std::string, ShardSet> shard_sets(const std::vector<std::string>& names,
                                           std::string_view end) {
  std::map<std::string, std::vector<std::pair<ShardName, std::string>>> found;
  for (const std::string& name : names) {
    if (const auto shard = shard_name(name, end)) {
      found[shard->front + shard->back].emplace_back(*shard, name);
    }
  }
  std::map<std::string, ShardSet> sets;
  for (const auto& [shared, shards] : found) {
    const ShardName& one = shards.front().first;
    ShardSet& set = sets[shared];
    set.total = one.total;
    std::set<size_t> numbers;
    for (const auto& [shard, name] : shards) {
      numbers.insert(shard.number);
      set.names.push_back(name);
    }
    const size_t first = *numbers.begin() == 0 ? 0 : 1;
    for (size_t i = first; i < first + set.total && set.missing.size() < kMostMissing; ++i) {
      if (numbers.contains(i)) continue;
      set.missing.push_back(fmt::format("{}{:0{}}{}", one.front, i, one.digits, one.back));
    }
  }
  return sets;
}

std::vector<std::string> whole_set(const std::vector<std::string>& names, std::string_view end) {
  std::vector<std::string> whole;
  for (auto& [shared, set] : shard_sets(names, end)) {
    if (!set.missing.empty()) continue;
    if (!whole.empty()) return {};
    whole = std::move(set.names);
  }
  return whole;
}

}  // namespace ferry
