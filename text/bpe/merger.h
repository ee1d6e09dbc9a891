// Merges the symbols of a piece, pair by pair, in the order of the pairs' ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "text/bpe/merge_table.h"

namespace ferry {

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
