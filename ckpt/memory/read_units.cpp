#include "ckpt/memory/read_units.h"

#include <algorithm>
#include <string>
#include <utility>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"
#include "ckpt/base/size_text.h"
#include "ckpt/core/plan_part.h"
#include "ckpt/engine/source_files.h"

namespace ferry {
namespace {

// Memory of the engine: this part of all, or less; more than the most only for streams that are
// decoded. What is left to it where a tensor takes nearly all is no less than the least.
constexpr uint64_t kEngineShare = 4, kLeastEngineShare = 16;
constexpr uint64_t kMostEngineBytes = uint64_t{256} << 20;
std::vector<ReadUnit> units_of(const TensorSet::State& tensors, const StreamOptions& options) {
  std::vector<size_t> chosen;
  if (options.names) {
    for (const std::string& name : *options.names) chosen.push_back(tensors.position_of(name));
  } else {
    for (size_t i = 0; i < tensors.entries().size(); ++i) chosen.push_back(i);
  }
  std::vector<ReadUnit> units;
  for (size_t i = 0; i < chosen.size(); ++i) {
    ReadUnit& unit = units.emplace_back();
    unit.positions = {chosen[i]};
    unit.is_asked = {true};
    if (const auto* together = tensors.together(chosen[i])) {
      for (const size_t position : *together) {
        if (position == unit.positions.front()) continue;
        const bool is_next = i + 1 < chosen.size() && chosen[i + 1] == position;
        unit.positions.push_back(position);
        unit.is_asked.push_back(is_next);
        i += is_next ? 1 : 0;
      }
    }
    for (const size_t position : unit.positions) {
      unit.bytes += static_cast<uint64_t>(tensors.entries()[position].bytes());
    }
  }
  return units;
}

}  // namespace

std::vector<ReadUnit> read_units(const TensorSet::State& tensors, const StreamOptions& options) {
  const auto [rank, ranks] = std::pair(options.rank, options.ranks);
  if (ranks < 1 || rank < 0 || rank >= ranks) {
    fail(ErrorKind::invalid, "{} is none of {}: they are counted from 0",
         option("rank", std::to_string(rank)), option("ranks", std::to_string(ranks)));
  }
  std::vector<ReadUnit> units = units_of(tensors, options);
  std::vector<uint64_t> bytes;
  for (const ReadUnit& unit : units) bytes.push_back(unit.bytes);
  const std::vector<int64_t> shares = share_out(bytes, ranks);
  std::vector<ReadUnit> own;
  for (size_t i = 0; i < units.size(); ++i) {
    if (shares[i] == rank) own.push_back(std::move(units[i]));
  }
  return own;
}

uint64_t engine_memory(const TensorSet::State& tensors, const std::vector<ReadUnit>& units,
                       uint64_t memory_bytes) {
  const auto largest = std::ranges::max_element(units, {}, &ReadUnit::bytes);
  const uint64_t most = stream_memory(*tensors.source(), memory_bytes) > 0
                            ? memory_bytes / 2
                            : std::min(memory_bytes / kEngineShare, kMostEngineBytes);
  if (largest == units.end() || largest->bytes <= memory_bytes - most) return most;
  const uint64_t least = memory_bytes / kLeastEngineShare;
  if (largest->bytes > memory_bytes - least) {
    const uint64_t needed =
        checked_add(largest->bytes, largest->bytes / (kLeastEngineShare - 1) + 1, "memory");
    fail(ErrorKind::exhausted,
         "tensor {} has {} ({} bytes), which do not fit into {} ({}); give {} or more",
         tensors.entries()[largest->positions.front()].name, human_bytes(largest->bytes),
         largest->bytes, option("memory_bytes", std::to_string(memory_bytes)),
         human_bytes(memory_bytes), needed);
  }
  return memory_bytes - largest->bytes;
}

}  // namespace ferry
