#include "ckpt/engine/tiles/tile_queue.h"

#include <algorithm>
#include <unordered_map>

#include "ckpt/core/item_index.h"
#include "ckpt/engine/tiles/tile_cut.h"

namespace ferry {

std::vector<TileQueue::Group> TileQueue::groups_of(const Plan& plan) {
  const ItemIndex index(plan.items);
  std::vector<Group> groups;
  std::unordered_map<uint32_t, size_t> group_of_item;
  for (size_t i = 0; i < plan.target.entries.size(); ++i) {
    const Entry& entry = plan.target.entries[i];
    if (entry.elements() == 0) continue;
    const Extent& extent = entry.chunks.at(0).extent;
    const auto item = index.find(extent.file, extent.offset, extent.length);
    const auto [at, is_new] = item ? group_of_item.try_emplace(*item, groups.size())
                                   : std::pair(group_of_item.end(), true);
    if (is_new) groups.push_back({extent.file, {}});
    groups[is_new ? groups.size() - 1 : at->second].entries.push_back(i);
  }
  return groups;
}

TileQueue::TileQueue(const Plan& plan, PlanCompiler& compiler, int threads, uint64_t tile_bytes)
    : plan_(plan),
      compiler_(compiler),
      tile_bytes_(tile_bytes),
      groups_(groups_of(plan)),
      lanes_(static_cast<size_t>(threads), Lane{kNoFile, groups_.size(), 0, 0, {}, 0}) {
  for (size_t i = 0; i < groups_.size(); ++i) waiting_[groups_[i].file].push_back(i);
}

std::optional<TileQueue::Tile> TileQueue::next(int thread) {
  const std::lock_guard lock(mutex_);
  Lane* lane = &lanes_[static_cast<size_t>(thread)];
  if (!refill(*lane)) {
    // The lane with the most entries left, then the most tiles.
    const auto left = [&](const Lane& other) {
      const size_t entries = other.group < groups_.size() ? groups_[other.group].entries.size() : 0;
      return std::pair(entries - std::min(entries, other.next_entry),
                       other.tiles.size() - other.next_tile);
    };
    lane = &*std::max_element(lanes_.begin(), lanes_.end(),
                              [&](const Lane& a, const Lane& b) { return left(a) < left(b); });
    if (!refill(*lane)) return std::nullopt;
  }
  return Tile{lane->entry, std::move(lane->tiles[lane->next_tile++])};
}

// The next group of the lane's own file, else of one that no other lane is at, else of any.
bool TileQueue::take_group(Lane& lane) {
  if (waiting_.empty()) return false;
  auto from = waiting_.find(lane.file);
  if (from == waiting_.end()) {
    from = std::find_if(waiting_.begin(), waiting_.end(), [&](const auto& file) {
      return std::none_of(lanes_.begin(), lanes_.end(),
                          [&](const Lane& other) { return other.file == file.first; });
    });
  }
  if (from == waiting_.end()) from = waiting_.begin();
  lane.file = from->first;
  lane.group = from->second.front();
  lane.next_entry = 0;
  from->second.pop_front();
  if (from->second.empty()) waiting_.erase(from);
  return true;
}

// Makes sure that a lane has a tile to hand out: of its entry, of its group or of a new group.
bool TileQueue::refill(Lane& lane) {
  while (lane.next_tile == lane.tiles.size()) {
    const bool is_done =
        lane.group == groups_.size() || lane.next_entry == groups_[lane.group].entries.size();
    if (is_done && !take_group(lane)) return false;
    lane.entry = groups_[lane.group].entries[lane.next_entry++];
    lane.tiles = cut(lane.entry);
    lane.next_tile = 0;
  }
  return true;
}

std::vector<Box> TileQueue::cut(size_t position) const {
  const Entry& entry = plan_.target.entries[position];
  const int64_t out_bytes = size_bytes(entry.dtype);
  int64_t in_bytes = out_bytes;
  for (uint32_t input : plan_.recipes[position].inputs) {
    in_bytes = std::max(in_bytes, size_bytes(plan_.source->entries[input].dtype));
  }
  const auto most =
      std::max<int64_t>(1, static_cast<int64_t>(tile_bytes_) / (in_bytes + out_bytes));
  return choose_tiles(entry.shape, entry.dtype, most,
                      [&](const Box& box) { return compiler_.compile(position, box); });
}

}  // namespace ferry
