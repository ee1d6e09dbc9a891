#include "ckpt/engine/tiles/tile_queue.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "ckpt/core/item_index.h"
#include "ckpt/core/quantised.h"
#include "ckpt/engine/quantise/quantising_runner.h"
#include "ckpt/engine/tiles/tile_cut.h"

namespace ferry {
namespace {

// Elements of one tile that is quantised: they stay in a core's cache. A row of blocks may have
// more, as parts of rows would be read and written a few kilobytes at a time.
constexpr int64_t kQuantisedElements = 512 << 10, kMostOfRow = 4 << 20;

bool is_borrowed(const BorrowedSources& borrowed, const Entry& source) {
  bool found = false;
  for_each_stored(source, [&](const Entry& part) {
    found = found || std::ranges::any_of(part.chunks, [&](const Chunk& chunk) {
              return borrowed.file(chunk.extent.file) != nullptr;
            });
  });
  return found;
}

bool reads_borrowed(const Plan& plan, const Recipe& recipe, const BorrowedSources& borrowed) {
  return std::ranges::any_of(recipe.inputs, [&](uint32_t input) {
    const Entry& entry = plan.source->entries[input];
    if (is_borrowed(borrowed, entry)) return true;
    return entry.remainders && is_borrowed(borrowed, plan.source->entries[entry.remainders->upper]);
  });
}

}  // namespace

std::vector<TileQueue::Group> TileQueue::groups_of(const Plan& plan,
                                                   const BorrowedSources* borrowed) {
  const ItemIndex index(plan.items);
  std::vector<Group> groups;
  std::unordered_map<uint32_t, size_t> group_of_item;
  for (size_t i = 0; i < plan.target.entries.size(); ++i) {
    const Entry& entry = plan.target.entries[i];
    if (entry.elements() == 0 || plan.recipes[i].is_scales) continue;
    const bool is_borrowed =
        borrowed != nullptr && reads_borrowed(plan, plan.recipes[i], *borrowed);
    for (Slab& slab : slabs_of(entry)) {
      const Extent& extent = entry.chunks.at(slab.first_chunk).extent;
      const auto item = index.find(extent.file, extent.offset, extent.length);
      const auto [at, is_new] = item ? group_of_item.try_emplace(*item, groups.size())
                                     : std::pair(group_of_item.end(), true);
      if (is_new) groups.push_back({extent.file, {}});
      Group& group = groups[is_new ? groups.size() - 1 : at->second];
      group.parts.push_back({i, std::move(slab.box)});
      group.is_borrowed = group.is_borrowed || is_borrowed;
    }
  }
  return groups;
}

TileQueue::TileQueue(const Plan& plan, PlanCompiler& compiler, int threads, uint64_t tile_bytes,
                     const BorrowedSources* borrowed)
    : plan_(plan),
      compiler_(compiler),
      tile_bytes_(tile_bytes),
      groups_(groups_of(plan, borrowed)),
      lanes_(static_cast<size_t>(threads), Lane{kNoFile, groups_.size(), 0, 0, {}, 0, false}) {
  for (const Group& group : groups_) {
    if (group.is_borrowed) lent_parts_ += group.parts.size();
  }
  lent_left_ = lent_parts_;
  has_later_ = has_borrowed();
  enqueue(has_borrowed());
}

void TileQueue::enqueue(bool borrowed) {
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (groups_[i].is_borrowed == borrowed) waiting_[groups_[i].file].push_back(i);
  }
  turns_.clear();
  for (const auto& [file, groups] : waiting_) turns_.push_back(file);
}

bool TileQueue::finish(const Tile& tile) {
  if (!tile.is_borrowed) return false;
  const std::lock_guard lock(mutex_);
  return --lent_left_ == 0;
}

std::optional<TileQueue::Tile> TileQueue::next(int thread) {
  const std::lock_guard lock(mutex_);
  Lane* lane = &lanes_[static_cast<size_t>(thread)];
  if (!refill(*lane)) {
    // The lane with the most slabs left, then the most tiles.
    const auto left = [&](const Lane& other) {
      const size_t parts = other.group < groups_.size() ? groups_[other.group].parts.size() : 0;
      return std::pair(parts - std::min(parts, other.next_part),
                       other.tiles.size() - other.next_tile);
    };
    lane = &*std::max_element(lanes_.begin(), lanes_.end(),
                              [&](const Lane& a, const Lane& b) { return left(a) < left(b); });
    if (!refill(*lane)) return std::nullopt;
  }
  return Tile{lane->entry, std::move(lane->tiles[lane->next_tile++]), lane->is_borrowed};
}

// The next group of the lane's own file, else of the file whose turn it is.
bool TileQueue::take_group(Lane& lane) {
  if (waiting_.empty() && std::exchange(has_later_, false)) enqueue(false);
  if (waiting_.empty()) return false;
  auto from = waiting_.find(lane.file);
  while (from == waiting_.end()) {
    from = waiting_.find(turns_.front());
    if (from != waiting_.end()) turns_.push_back(turns_.front());
    turns_.pop_front();
  }
  lane.file = from->first;
  lane.group = from->second.front();
  lane.next_part = 0;
  from->second.pop_front();
  if (from->second.empty()) waiting_.erase(from);
  return true;
}

// Makes sure that a lane has a tile to hand out: of its slab, of its group or of a new group.
bool TileQueue::refill(Lane& lane) {
  while (lane.next_tile == lane.tiles.size()) {
    const bool is_done =
        lane.group == groups_.size() || lane.next_part == groups_[lane.group].parts.size();
    if (is_done && !take_group(lane)) return false;
    const Part& part = groups_[lane.group].parts[lane.next_part++];
    lane.entry = part.entry;
    lane.tiles = cut(part);
    lane.next_tile = 0;
    lane.is_borrowed = groups_[lane.group].is_borrowed;
    if (lane.is_borrowed) lent_left_ += lane.tiles.size() - 1;
  }
  return true;
}

std::vector<Box> TileQueue::cut(const Part& part) const {
  const Entry& entry = plan_.target.entries[part.entry];
  const int64_t out_bytes = size_bytes(entry.dtype);
  int64_t in_bytes = out_bytes;
  for (uint32_t input : plan_.recipes[part.entry].inputs) {
    in_bytes = std::max(in_bytes, size_bytes(plan_.source->entries[input].dtype));
  }
  const auto tile_bytes = static_cast<int64_t>(tile_bytes_);
  if (const auto& quantise = plan_.recipes[part.entry].quantise) {
    const int64_t held = in_bytes + 2 * size_bytes(quantise->values) + 2;
    const Dims unit = tile_unit(*quantise);
    const int64_t row = std::min(unit[0] * quantise->shape[1], kMostOfRow);
    return cut_into_blocks(quantise->shape, unit,
                           std::min(tile_bytes / held, std::max(row, kQuantisedElements)));
  }
  const auto most = std::max<int64_t>(1, tile_bytes / (in_bytes + out_bytes));
  const auto in_the_entry = [&](Box tile) {
    for (size_t axis = 0; axis < tile.offset.size(); ++axis) {
      tile.offset[axis] += part.box.offset[axis];
    }
    return tile;
  };
  std::vector<Box> tiles = choose_tiles(part.box.size, entry.dtype, most, [&](const Box& tile) {
    return compiler_.compile(part.entry, in_the_entry(tile));
  });
  for (Box& tile : tiles) tile = in_the_entry(std::move(tile));
  return tiles;
}

}  // namespace ferry
