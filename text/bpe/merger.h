// Merges the symbols of a piece, pair by pair, in the order of the pairs' ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace ferry {

// Which two neighbours become one, and how soon: what byte-pair encoding learnt.

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

/// Not for several threads at once.
class Merger {
 public:
  /// Merges `symbols` in place. Of pairs of the same rank the leftmost goes first. Takes n log n
  /// steps. `one_pair` is the table's symbols_have_one_pair(), or true where ranks follow from
  /// symbols. Else a pair whose symbols changed while it waited, but not what comes of it, keeps
  /// the rank that it had, as Hugging Face's tokenizers do it (models/bpe/word.rs, merge_all).
  void merge(const MergeTable& table, bool one_pair, std::vector<int32_t>& symbols);

  /// The same, where ranks follow from symbols. `seen` gets each pair of the table when its two
  /// come to stand beside each other, also where others go first.
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
    int32_t symbol;  // kGone when merged into its left neighbour
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
