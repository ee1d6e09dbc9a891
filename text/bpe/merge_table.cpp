#include "text/bpe/merge_table.h"

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

}  // namespace ferry
