// Finds the tokens that a text starts with. Source: Aoe 1989 (double arrays); children are at base
// XOR byte, as in Darts-clone.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace ferry {

class Trie {
 public:
  /// Without tokens.
  Trie() : Trie(std::vector<std::pair<std::string_view, int32_t>>()) {}
  /// Takes non-empty tokens and their values, 0 or more. Of duplicates the last one counts.
  explicit Trie(std::vector<std::pair<std::string_view, int32_t>> tokens);

  /// Calls take(bytes, value) for each token that `text` starts with, shortest first.
  template <typename Take>
  void prefixes(std::string_view text, Take take) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      const uint32_t next = (nodes_[node].base & kBase) ^ static_cast<unsigned char>(text[i]);
      if (nodes_[next].parent != node) return;
      node = next;
      if ((nodes_[node].base & kHasValue) != 0) take(i + 1, values_[node]);
    }
  }

 private:
  static constexpr uint32_t kFree = UINT32_MAX, kHasValue = uint32_t{1} << 31,
                            kBase = kHasValue - 1;
  struct Node {
    uint32_t base = 0;  // of its children; kHasValue
    uint32_t parent = kFree;
  };
  class Builder;

  std::vector<Node> nodes_;  // in whole blocks of 256
  std::vector<int32_t> values_;
};

}  // namespace ferry
