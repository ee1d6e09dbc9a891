// Which two neighbours become one, and how soon: what byte-pair encoding learnt.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ferry {

struct Merge {
  uint64_t pair;   // left symbol << 32 | right symbol
  int32_t rank;    // the lowest goes first
  int32_t symbol;  // that the two become
};

class MergeTable {
 public:
  explicit MergeTable(size_t merges);
  /// A pair that is there keeps its first symbol and gets the new rank.
  void insert(int32_t left, int32_t right, int32_t rank, int32_t symbol);
  /// Nothing where the two do not merge.
  const Merge* find(int32_t left, int32_t right) const {
    const uint64_t pair = key(left, right);
    for (size_t at = place(pair);; at = (at + 1) & mask_) {
      if (merges_[at].pair == pair) return &merges_[at];
      if (merges_[at].pair == kNone) return nullptr;
    }
  }
  /// Whether every symbol comes from one pair alone, so that the order of merges follows from the
  /// pairs that stand beside each other.
  bool symbols_have_one_pair() const;

 private:
  static constexpr uint64_t kNone = ~uint64_t{0};
  static uint64_t key(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t place(uint64_t pair) const {
    return static_cast<size_t>(pair * 0x9E3779B97F4A7C15u >> shift_);
  }

  std::vector<Merge> merges_;
  size_t mask_ = 0;
  int shift_ = 0;
};

}  // namespace ferry
