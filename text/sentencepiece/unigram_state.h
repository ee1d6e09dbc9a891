// What SentencePiece's unigram model keeps between words of a text.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace ferry {

/// The best paths of words that came lately. Scores add up in float from the text's start on, so
/// that rounding may decide between paths that are nearly as good: each has by how much it is
/// better than what else ends where one of its steps does. Not for several threads at once.
class PathCache {
 public:
  static constexpr size_t kLongest = 22;  // bytes of a word that is kept
  static constexpr size_t kIds = 8;

  struct Path {
    float margin = 0;   // of the least certain step
    float highest = 0;  // the greatest absolute value of a score on the way
    std::span<const int32_t> ids;
  };

  PathCache() : entries_(kEntries) {}

  /// Nothing where the word is not kept. `hash` is the word's.
  bool find(std::string_view word, uint64_t hash, Path& path) const {
    const Entry& entry = entries_[hash >> (64 - kBits)];
    if (entry.bytes != word.size() || std::memcmp(entry.word, word.data(), word.size()) != 0) {
      return false;
    }
    path = {entry.margin, entry.highest, {entry.ids, entry.count}};
    return true;
  }
  /// Keeps the path of a word of 1 to kLongest bytes, of at most kIds steps.
  void keep(std::string_view word, uint64_t hash, const Path& path) {
    Entry& entry = entries_[hash >> (64 - kBits)];
    entry.bytes = static_cast<uint8_t>(word.size());
    entry.count = static_cast<uint8_t>(path.ids.size());
    entry.margin = path.margin;
    entry.highest = path.highest;
    std::memcpy(entry.word, word.data(), word.size());
    std::memcpy(entry.ids, path.ids.data(), path.ids.size_bytes());
  }

 private:
  static constexpr size_t kBits = 15, kEntries = size_t{1} << kBits;
  struct alignas(64) Entry {
    float margin = 0, highest = 0;
    uint8_t bytes = 0, count = 0;
    char word[kLongest];
    int32_t ids[kIds];
  };

  std::vector<Entry> entries_;
};

struct UnigramState {
  static constexpr uint32_t kNowhere = UINT32_MAX;

  // The best way to the end of a character, and the score of the second best.
  struct Node {
    float score = 0, second = 0;
    uint32_t begin = kNowhere;
    int32_t id = 0;
  };
  std::vector<Node> nodes;
  std::vector<int32_t> word_ids;
  PathCache cache;
};

}  // namespace ferry
