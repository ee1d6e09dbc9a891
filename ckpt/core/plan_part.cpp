#include "ckpt/core/plan_part.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "ckpt/core/item_index.h"
#include "ckpt/core/recipe_cutter.h"

namespace ferry {
namespace {

// What one rank writes whole: an item with its chunks, or a chunk outside of all items.
struct Unit {
  uint32_t file = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;  // of chunks
  int64_t rank = 0;
};

class Sharer {
 public:
  explicit Sharer(Plan& plan) : plan_(plan), index_(plan.items) {
    for (const Item& item : plan.items) units_.push_back({item.file, item.offset, 0, 0});
    for_each_chunk([&](Chunk& chunk) {
      const Extent& extent = chunk.extent;
      const auto item = index_.find(extent.file, extent.offset, extent.length);
      units_of_chunks_.push_back(item ? *item : static_cast<uint32_t>(units_.size()));
      if (!item) units_.push_back({extent.file, extent.offset, 0, 0});
      units_[units_of_chunks_.back()].bytes += extent.length;
    });
  }

  void share(int64_t ranks) {
    loads_.assign(static_cast<size_t>(ranks), 0);
    total_ = std::transform_reduce(units_.begin(), units_.end(), uint64_t{0}, std::plus<>(),
                                   [](const Unit& unit) { return unit.bytes; });
    const uint64_t large = total_ / static_cast<uint64_t>(ranks) / 16;
    std::vector<Unit*> big, small;
    for (Unit& unit : units_) (unit.bytes > large ? big : small).push_back(&unit);
    give_to_least_loaded(big);
    fill_up(small);
    size_t next = 0;
    for_each_chunk([&](Chunk& chunk) { chunk.rank = units_[units_of_chunks_[next++]].rank; });
    for (size_t i = 0; i < plan_.items.size(); ++i) plan_.items[i].rank = units_[i].rank;
  }

 private:
  template <typename Use>
  void for_each_chunk(const Use& use) {
    for (Entry& entry : plan_.target.entries) {
      for (Chunk& chunk : entry.chunks) use(chunk);
    }
  }

  void give_to_least_loaded(std::vector<Unit*>& units) {
    std::stable_sort(units.begin(), units.end(),
                     [](const Unit* a, const Unit* b) { return a->bytes > b->bytes; });
    for (Unit* unit : units) {
      const auto least = std::min_element(loads_.begin(), loads_.end());
      unit->rank = least - loads_.begin();
      *least += unit->bytes;
    }
  }

  // Neighbours together: rank after rank is filled up to the level at which nothing is left.
  void fill_up(std::vector<Unit*>& units) {
    std::stable_sort(units.begin(), units.end(), [](const Unit* a, const Unit* b) {
      return std::pair(a->file, a->offset) < std::pair(b->file, b->offset);
    });
    const uint64_t level =
        level_of(total_ - std::accumulate(loads_.begin(), loads_.end(), uint64_t{0}));
    size_t rank = 0;
    for (Unit* unit : units) {
      while (rank + 1 < loads_.size() && loads_[rank] + unit->bytes / 2 >= level) ++rank;
      unit->rank = static_cast<int64_t>(rank);
      loads_[rank] += unit->bytes;
    }
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

  Plan& plan_;
  const ItemIndex index_;
  std::vector<Unit> units_;  // items, then chunks outside of them
  std::vector<uint32_t> units_of_chunks_;
  std::vector<uint64_t> loads_;  // bytes by rank
  uint64_t total_ = 0;
};

}  // namespace

void share_out(Plan& plan, int64_t ranks) { Sharer(plan).share(ranks); }

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
