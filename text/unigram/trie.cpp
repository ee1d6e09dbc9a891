#include "text/unigram/trie.h"

#include <algorithm>

namespace ferry {

void Trie::insert(std::string_view token, int32_t value) {
  size_t node = 0;
  for (const char character : token) {
    const auto byte = static_cast<uint8_t>(character);
    size_t next = child(node, byte);
    if (next == 0) {
      next = nodes_.size();
      nodes_.emplace_back();
      auto& children = nodes_[node].children;
      const auto at = std::lower_bound(children.begin(), children.end(), byte,
                                       [](const auto& a, uint8_t b) { return a.first < b; });
      children.insert(at, {byte, static_cast<uint32_t>(next)});
    }
    node = next;
  }
  if (node != 0) nodes_[node].value = value;
}

}  // namespace ferry
