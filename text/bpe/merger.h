// Merges the symbols of a piece, pair by pair, in the order of the pairs' ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace ferry {

// The merges of byte-pair encoding and their ranks.

struct Merge {
  uint64_t pair;   // left symbol << 32 | right symbol
  int32_t rank;    // the lowest is merged first
  int32_t symbol;  // the merged symbol
};

class MergeTable {
 public:
  explicit MergeTable(size_t merges);
  /// A duplicate pair keeps its first symbol and gets the new rank.
  void insert(int32_t left, int32_t right, int32_t rank, int32_t symbol);
  /// Null if the two do not merge.
  const Merge* find(int32_t left, int32_t right) const {
    const uint64_t pair = key(left, right);
    for (size_t at = place(pair);; at = (at + 1) & mask_) {
      if (merges_[at].pair == pair) return &merges_[at];
      if (merges_[at].pair == kNone) return nullptr;
    }
  }
  /// Whether every symbol results from only one pair, so that the order of merges follows from
  /// adjacent pairs.
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

/// Not thread-safe.
class Merger {
 public:
  /// Merges `symbols` in place. Among pairs of equal rank the leftmost is merged first. O(n log n).
  /// `one_pair` is the table's symbols_have_one_pair(), or true if ranks follow from symbols.
  /// Otherwise a queued pair whose symbols have changed, but whose result has not, keeps its rank,
  /// as in Hugging Face's tokenizers (models/bpe/word.rs, merge_all).
  void merge(const MergeTable& table, bool one_pair, std::vector<int32_t>& symbols);

  /// The same if ranks follow from symbols. Calls `seen` for each pair of the table when its two
  /// symbols become adjacent, even if others are merged first.
  using Seen = std::function<void(const Merge&)>;
  void merge(const MergeTable& table, std::vector<int32_t>& symbols, const Seen& seen) {
    merge_queued(table, symbols, &seen);
  }

 private:
  struct Candidate {
    int32_t rank;
    uint32_t at;  // of the left symbol
    int32_t symbol;
  };
  struct Link {
    int32_t symbol;  // kGone if merged into its left neighbour
    uint32_t previous, next;
  };
  struct Later {
    bool operator()(const Candidate& a, const Candidate& b) const {
      return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
    }
  };

  void merge_few(const MergeTable& table, std::vector<int32_t>& symbols);
  void merge_queued(const MergeTable& table, std::vector<int32_t>& symbols, const Seen* seen);
  void offer(const MergeTable& table, uint32_t left, uint32_t right, const Seen* seen);

  std::vector<Candidate> queue_;
  std::vector<Link> links_;
};

}  // namespace ferry
