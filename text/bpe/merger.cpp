#include "text/bpe/merger.h"

#include <algorithm>
#include <bit>

namespace ferry {

MergeTable::MergeTable(size_t merges) {
  const size_t places = std::bit_ceil(std::max<size_t>(16, 2 * merges));
  merges_.assign(places, {kNone, 0, 0});
  mask_ = places - 1;
  shift_ = 64 - std::countr_zero(places);
}

void MergeTable::insert(int32_t left, int32_t right, int32_t rank, int32_t symbol) {
  const uint64_t pair = key(left, right);
  size_t at = place(pair);
  while (merges_[at].pair != kNone && merges_[at].pair != pair) at = (at + 1) & mask_;
  if (merges_[at].pair == pair) symbol = merges_[at].symbol;
  merges_[at] = {pair, rank, symbol};
}

bool MergeTable::symbols_have_one_pair() const {
  std::vector<int32_t> symbols;
  for (const Merge& merge : merges_) {
    if (merge.pair != kNone) symbols.push_back(merge.symbol);
  }
  std::sort(symbols.begin(), symbols.end());
  return std::adjacent_find(symbols.begin(), symbols.end()) == symbols.end();
}

namespace {

constexpr size_t kFew = 32;  // symbols for which a search is faster than a queue
constexpr int32_t kGone = -1;
constexpr uint32_t kNoLink = UINT32_MAX;

}  // namespace

void Merger::merge(const MergeTable& table, bool one_pair, std::vector<int32_t>& symbols) {
  if (symbols.size() < 2) return;
  if (one_pair && symbols.size() <= kFew) return merge_few(table, symbols);
  merge_queued(table, symbols, nullptr);
}

void Merger::merge_queued(const MergeTable& table, std::vector<int32_t>& symbols,
                          const Seen* seen) {
  const auto count = static_cast<uint32_t>(symbols.size());
  links_.resize(count);
  queue_.clear();
  for (uint32_t i = 0; i < count; ++i) {
    links_[i] = {symbols[i], i == 0 ? kNoLink : i - 1, i + 1 < count ? i + 1 : kNoLink};
  }
  for (uint32_t i = 0; i + 1 < count; ++i) {
    if (const Merge* pair = table.find(symbols[i], symbols[i + 1])) {
      queue_.push_back({pair->rank, i, pair->symbol});
      if (seen != nullptr) (*seen)(*pair);
    }
  }
  std::make_heap(queue_.begin(), queue_.end(), Later());
  while (!queue_.empty()) {
    const Candidate first = queue_.front();
    std::pop_heap(queue_.begin(), queue_.end(), Later());
    queue_.pop_back();
    Link& left = links_[first.at];
    if (left.symbol == kGone || left.next == kNoLink) continue;
    Link& right = links_[left.next];
    const Merge* pair = table.find(left.symbol, right.symbol);
    if (pair == nullptr || pair->symbol != first.symbol) continue;
    left.symbol = first.symbol;
    right.symbol = kGone;
    left.next = right.next;
    if (left.next != kNoLink) links_[left.next].previous = first.at;
    if (left.previous != kNoLink) offer(table, left.previous, first.at, seen);
    if (left.next != kNoLink) offer(table, first.at, left.next, seen);
  }
  symbols.clear();
  if (count == 0) return;
  for (uint32_t i = 0; i != kNoLink; i = links_[i].next) symbols.push_back(links_[i].symbol);
}

void Merger::offer(const MergeTable& table, uint32_t left, uint32_t right, const Seen* seen) {
  const Merge* pair = table.find(links_[left].symbol, links_[right].symbol);
  if (pair == nullptr) return;
  if (seen != nullptr) (*seen)(*pair);
  queue_.push_back({pair->rank, left, pair->symbol});
  std::push_heap(queue_.begin(), queue_.end(), Later());
}

void Merger::merge_few(const MergeTable& table, std::vector<int32_t>& symbols) {
  size_t count = symbols.size();
  const Merge* pairs[kFew];
  for (size_t i = 0; i + 1 < count; ++i) pairs[i] = table.find(symbols[i], symbols[i + 1]);
  while (count > 1) {
    size_t best = count;
    int32_t rank = INT32_MAX;
    for (size_t i = 0; i + 1 < count; ++i) {
      if (pairs[i] != nullptr && pairs[i]->rank < rank) rank = pairs[i]->rank, best = i;
    }
    if (best == count) break;
    symbols[best] = pairs[best]->symbol;
    std::copy(symbols.begin() + static_cast<ptrdiff_t>(best) + 2,
              symbols.begin() + static_cast<ptrdiff_t>(count),
              symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
    std::copy(pairs + best + 1, pairs + count - 1, pairs + best);
    --count;
    if (best > 0) pairs[best - 1] = table.find(symbols[best - 1], symbols[best]);
    if (best + 1 < count) pairs[best] = table.find(symbols[best], symbols[best + 1]);
  }
  symbols.resize(count);
}

}  // namespace ferry
