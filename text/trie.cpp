#include "text/trie.h"

#include <algorithm>

#include "ckpt/base/error.h"

namespace ferry {

// Allocates nodes, with a linked list of free ones.
class Trie::Builder {
 public:
  Builder(std::vector<Node>& nodes, std::vector<int32_t>& values) : nodes_(nodes), values_(values) {
    add_block();
  }

  void build(const std::vector<std::pair<std::string_view, int32_t>>& tokens) {
    take(0, kFree - 1);  // no byte leads back to the root
    struct Range {
      uint32_t node;
      size_t begin, end, depth;  // tokens with a common prefix of `depth` bytes
    };
    std::vector<Range> open{{0, 0, tokens.size(), 0}};
    std::vector<std::pair<uint8_t, size_t>> children;  // a byte, and the first of its tokens
    while (!open.empty()) {
      auto [node, begin, end, depth] = open.back();
      open.pop_back();
      for (; begin < end && tokens[begin].first.size() == depth; ++begin) {
        nodes_[node].base = kHasValue;
        values_[node] = tokens[begin].second;
      }
      if (begin == end) continue;
      children.clear();
      for (size_t i = begin; i < end; ++i) {
        const auto byte = static_cast<uint8_t>(tokens[i].first[depth]);
        if (children.empty() || children.back().first != byte) children.emplace_back(byte, i);
      }
      const uint32_t base = place_for(children);
      nodes_[node].base |= base;
      for (size_t i = 0; i < children.size(); ++i) {
        const uint32_t child = base ^ children[i].first;
        take(child, node);
        open.push_back({child, children[i].second,
                        i + 1 < children.size() ? children[i + 1].second : end, depth + 1});
      }
    }
  }

 private:
  static constexpr uint32_t kBlock = 256, kEnd = UINT32_MAX;
  static constexpr int kTries = 32;  // free nodes to try before adding a block

  struct Links {
    uint32_t previous, next;
  };

  uint32_t place_for(const std::vector<std::pair<uint8_t, size_t>>& children) {
    uint32_t at = first_;
    for (int tries = 0; at != kEnd && tries < kTries; ++tries, at = links_[at].next) {
      const uint32_t base = at ^ children[0].first;
      if (std::all_of(children.begin(), children.end(), [&](const auto& child) {
            return nodes_[base ^ child.first].parent == kFree;
          })) {
        return base;
      }
    }
    return add_block();
  }

  // The first place of the new block.
  uint32_t add_block() {
    const auto begin = static_cast<uint32_t>(nodes_.size());
    if (nodes_.size() >= kBase) {
      fail(ErrorKind::exhausted, "the tokens of a vocabulary have more than {} bytes in total",
           kBase);
    }
    nodes_.resize(nodes_.size() + kBlock);
    values_.resize(nodes_.size());
    for (uint32_t at = begin; at < begin + kBlock; ++at) {
      links_.push_back({last_, kEnd});
      (last_ == kEnd ? first_ : links_[last_].next) = at;
      last_ = at;
    }
    return begin;
  }

  void take(uint32_t at, uint32_t parent) {
    nodes_[at].parent = parent;
    const auto [previous, next] = links_[at];
    (previous == kEnd ? first_ : links_[previous].next) = next;
    (next == kEnd ? last_ : links_[next].previous) = previous;
  }

  std::vector<Node>& nodes_;
  std::vector<int32_t>& values_;
  std::vector<Links> links_;
  uint32_t first_ = kEnd, last_ = kEnd;
};

Trie::Trie(std::vector<std::pair<std::string_view, int32_t>> tokens) {
  std::stable_sort(tokens.begin(), tokens.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  Builder(nodes_, values_).build(tokens);
}

}  // namespace ferry
