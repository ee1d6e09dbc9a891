#include "ckpt/core/plan_share.h"

#include <algorithm>
#include <numeric>

#include "ckpt/core/item_index.h"

namespace ferry {
namespace {

// Sets of positions that grow together.
class Sets {
 public:
  explicit Sets(size_t count) : parents_(count) { std::iota(parents_.begin(), parents_.end(), 0); }

  size_t find(size_t at) {
    while (parents_[at] != at) at = parents_[at] = parents_[parents_[at]];
    return at;
  }

  // The earlier position stands for both.
  void join(size_t a, size_t b) {
    a = find(a), b = find(b);
    parents_[std::max(a, b)] = std::min(a, b);
  }

 private:
  std::vector<size_t> parents_;
};

uint64_t bytes_of(const Entry& entry) {
  uint64_t bytes = 0;
  for (const Chunk& chunk : entry.chunks) bytes += chunk.extent.length;
  return bytes;
}

}  // namespace

PlanShares share_out(const Plan& plan, uint32_t owners) {
  const std::vector<Entry>& entries = plan.target.entries;
  const ItemIndex index(plan.items);
  Sets sets(entries.size() + plan.items.size());  // entries, then items
  for (size_t i = 0; i < entries.size(); ++i) {
    for (const Chunk& chunk : entries[i].chunks) {
      if (chunk.extent.length == 0) continue;
      const auto item = index.find(chunk.extent.file, chunk.extent.offset, chunk.extent.length);
      if (item) sets.join(i, entries.size() + *item);
    }
  }
  std::vector<uint64_t> bytes(entries.size() + plan.items.size());  // of the set that begins there
  uint64_t total = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    bytes[sets.find(i)] += bytes_of(entries[i]);
    total += bytes_of(entries[i]);
  }
  // Each set goes to whom its middle falls to.
  std::vector<uint32_t> owner(bytes.size());
  double before = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (sets.find(i) != i || total == 0) continue;
    const double middle = before + static_cast<double>(bytes[i]) / 2;
    const double place = middle / static_cast<double>(total) * owners;
    owner[i] = std::min(static_cast<uint32_t>(place), owners - 1);
    before += static_cast<double>(bytes[i]);
  }
  PlanShares shares;
  for (size_t i = 0; i < bytes.size(); ++i) {
    (i < entries.size() ? shares.entries : shares.items).push_back(owner[sets.find(i)]);
  }
  return shares;
}

Plan share_of(const Plan& plan, const PlanShares& shares, uint32_t owner) {
  Plan share;
  share.source = plan.source;
  share.target.files = plan.target.files;
  for (size_t i = 0; i < plan.target.entries.size(); ++i) {
    if (shares.entries[i] != owner) continue;
    share.target.entries.push_back(plan.target.entries[i]);
    share.recipes.push_back(plan.recipes[i]);
  }
  for (size_t i = 0; i < plan.items.size(); ++i) {
    if (shares.items[i] == owner) share.items.push_back(plan.items[i]);
  }
  return share;
}

}  // namespace ferry
