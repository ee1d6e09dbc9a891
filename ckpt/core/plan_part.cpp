#include "ckpt/core/plan_part.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "ckpt/core/item_index.h"
#include "ckpt/core/recipe_cutter.h"

namespace ferry {
namespace {

// Deals out things by their sizes.
class Sharer {
 public:
  Sharer(std::span<const uint64_t> bytes, int64_t ranks)
      : bytes_(bytes), loads_(static_cast<size_t>(ranks)), ranks_(bytes.size()) {}

  std::vector<int64_t> share() && {
    const uint64_t total = std::accumulate(bytes_.begin(), bytes_.end(), uint64_t{0});
    const uint64_t large = total / loads_.size() / 16;
    std::vector<size_t> big, small;
    for (size_t i = 0; i < bytes_.size(); ++i) (bytes_[i] > large ? big : small).push_back(i);
    give_to_least_loaded(big);
    fill_up(small, total - std::accumulate(loads_.begin(), loads_.end(), uint64_t{0}));
    return std::move(ranks_);
  }

 private:
  void give_to_least_loaded(std::vector<size_t>& things) {
    std::ranges::stable_sort(things, std::greater<>(), [&](size_t i) { return bytes_[i]; });
    for (const size_t i : things) give(i, std::ranges::min_element(loads_) - loads_.begin());
  }

  // Neighbours together: rank after rank is filled up to the level at which nothing is left.
  void fill_up(const std::vector<size_t>& things, uint64_t bytes) {
    const uint64_t level = level_of(bytes);
    size_t rank = 0;
    for (const size_t i : things) {
      while (rank + 1 < loads_.size() && loads_[rank] + bytes_[i] / 2 >= level) ++rank;
      give(i, static_cast<int64_t>(rank));
    }
  }

  void give(size_t thing, int64_t rank) {
    ranks_[thing] = rank;
    loads_[static_cast<size_t>(rank)] += bytes_[thing];
  }

  // The load that the less loaded ranks have once `bytes` more are given to them.
  uint64_t level_of(uint64_t bytes) const {
    std::vector<uint64_t> loads = loads_;
    std::sort(loads.begin(), loads.end());
    uint64_t sum = bytes;
    for (size_t count = 1; count <= loads.size(); ++count) {
      sum += loads[count - 1];
      const uint64_t level = sum / count + (sum % count != 0);
      if (count == loads.size() || level <= loads[count]) return level;
    }
    return 0;
  }

  std::span<const uint64_t> bytes_;
  std::vector<uint64_t> loads_;  // bytes by rank
  std::vector<int64_t> ranks_;   // of the things
};

// What one rank writes whole: an item with its chunks, or a chunk outside of all items.
struct Unit {
  uint32_t file = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;  // of chunks
  int64_t rank = 0;
};

template <typename Use>
void for_each_chunk(Plan& plan, const Use& use) {
  for (Entry& entry : plan.target.entries) {
    for (Chunk& chunk : entry.chunks) use(chunk);
  }
}

void share_out(std::vector<Unit>& units, int64_t ranks) {
  std::vector<Unit*> in_place;
  for (Unit& unit : units) in_place.push_back(&unit);
  std::ranges::stable_sort(in_place, {},
                           [](const Unit* unit) { return std::pair(unit->file, unit->offset); });
  std::vector<uint64_t> bytes;
  for (const Unit* unit : in_place) bytes.push_back(unit->bytes);
  const std::vector<int64_t> shares = Sharer(bytes, ranks).share();
  for (size_t i = 0; i < in_place.size(); ++i) in_place[i]->rank = shares[i];
}

}  // namespace

std::vector<int64_t> share_out(std::span<const uint64_t> bytes, int64_t ranks) {
  return Sharer(bytes, ranks).share();
}

void share_out(Plan& plan, int64_t ranks) {
  const ItemIndex index(plan.items);
  std::vector<Unit> units;  // items, then chunks outside of them
  for (const Item& item : plan.items) units.push_back({item.file, item.offset, 0, 0});
  std::vector<uint32_t> units_of_chunks;
  for_each_chunk(plan, [&](Chunk& chunk) {
    const Extent& extent = chunk.extent;
    const auto item = index.find(extent.file, extent.offset, extent.length);
    units_of_chunks.push_back(item ? *item : static_cast<uint32_t>(units.size()));
    if (!item) units.push_back({extent.file, extent.offset, 0, 0});
    units[units_of_chunks.back()].bytes += extent.length;
  });
  share_out(units, ranks);
  size_t next = 0;
  for_each_chunk(plan, [&](Chunk& chunk) { chunk.rank = units[units_of_chunks[next++]].rank; });
  for (size_t i = 0; i < plan.items.size(); ++i) plan.items[i].rank = units[i].rank;
}

Plan part_of(const Plan& plan, int64_t rank) {
  Plan part;
  part.source = plan.source;
  part.target.files = plan.target.files;
  for (size_t i = 0; i < plan.target.entries.size(); ++i) {
    const Entry& entry = plan.target.entries[i];
    std::optional<RecipeCutter> cutter;
    for (const Chunk& chunk : entry.chunks) {
      if (chunk.rank != rank) continue;
      if (!cutter) cutter.emplace(plan.recipes[i], entry.shape);
      const Dims shape = chunk.is_run() ? Dims{chunk.run_count} : chunk.box.size;
      const Chunk whole{{Box::whole(shape), rank}, {}, chunk.extent};
      part.target.entries.push_back({entry.name, entry.dtype, shape, {whole}, entry.role});
      part.recipes.push_back(cutter->cut(chunk));
    }
  }
  for (const Item& item : plan.items) {
    if (item.rank == rank) part.items.push_back(item);
  }
  return part;
}

}  // namespace ferry
