// The tokens that a text begins with.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace ferry {

class Trie {
 public:
  Trie() : nodes_(1) {}
  /// A token that is there gets the new value, 0 or more.
  void insert(std::string_view token, int32_t value);
  /// Calls take(bytes, value) for each token that `text` begins with, the shortest first.
  template <typename Take>
  void prefixes(std::string_view text, Take take) const {
    size_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      node = child(node, static_cast<unsigned char>(text[i]));
      if (node == 0) return;
      if (nodes_[node].value >= 0) take(i + 1, nodes_[node].value);
    }
  }

 private:
  struct Node {
    int32_t value = -1;
    std::vector<std::pair<uint8_t, uint32_t>> children;  // sorted by byte
  };
  // 0 where there is none.
  size_t child(size_t node, uint8_t byte) const {
    const auto& children = nodes_[node].children;
    if (children.size() > 32) {  // the root and some others
      size_t low = 0, high = children.size();
      while (low < high) {
        const size_t middle = (low + high) / 2;
        children[middle].first < byte ? low = middle + 1 : high = middle;
      }
      return low < children.size() && children[low].first == byte ? children[low].second : 0;
    }
    for (const auto& [key, next] : children) {
      if (key == byte) return next;
    }
    return 0;
  }

  std::vector<Node> nodes_;
};

}  // namespace ferry
