// What a Draft holds: nodes of a document that grows. Private to draft.cpp and draft_state.cpp.
//
// Every node has its ranges to itself, so that changing one changes no other.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ckpt/format/pickle/values/draft.h"

namespace ferry {

struct Draft::State {
  enum Fixed : uint32_t { kNone, kTrue, kFalse, kFixedNodes };

  /// What has been copied of one document: its numbers -> ours.
  struct Copies {
    std::shared_ptr<const Document> owner;  // null when no shared_ptr owns it
    std::unordered_map<uint32_t, uint32_t> nodes, texts, reductions;
    std::unordered_map<int64_t, int64_t> tensors;
    std::map<std::string, std::string> storages;
    uint64_t slots = 0;  // copied so far
  };

  State();

  Value value(uint32_t node) const { return {document.get(), node}; }
  ValueNode& at(uint32_t node) { return document->nodes[node]; }
  const Reduction& reduction(uint32_t node) { return document->reductions[at(node).reduction()]; }

  uint32_t add(ValueNode node);
  uint32_t add_text(std::string text);
  uint32_t global(std::string_view module, std::string_view name);
  Value container(ValueKind kind, uint32_t reduction, const std::vector<Value>& items);

  /// The node of a value of this draft, copied in when it is not.
  uint32_t own(const Value& value);
  /// The node of a value of this draft, of one of these kinds; invalid otherwise.
  uint32_t own_container(const Value& value, std::initializer_list<ValueKind> kinds);

  uint32_t reduction_of(uint32_t callable, Reduction::Call call, bool apart = false);
  uint32_t container_reduction(std::string_view module, std::string_view name);
  Reduction& own_reduction(uint32_t node);
  void count_item(uint32_t object);       // about to be appended
  void count_attribute(uint32_t object);  // about to be added
  /// The last pair whose key is that text, or equals `key` as keys of a dict do, as far as they are
  /// plain.
  std::optional<size_t> find_pair(uint32_t node, std::string_view key);
  std::optional<size_t> find_pair(uint32_t node, const Value& key);
  void note_pair(uint32_t node, uint32_t key);  // about to be added
  void set_pair(uint32_t node, size_t pair, uint32_t value);
  void remove_pair(uint32_t node, size_t pair);

  uint32_t copy(const Value& value);

  std::shared_ptr<Document> document;
  std::unordered_map<std::string, uint32_t> globals;             // by length of the module and text
  std::map<std::pair<uint64_t, uint32_t>, uint32_t> reductions;  // by callable and call; of stated
  std::unordered_map<const Document*, Copies> copies;
  std::vector<uint64_t> storage_bytes;  // by key

 private:
  class Copier;
  /// Number of the last pair by its key's search form. Only for large containers, in which a linear
  /// search would take long.
  using PairIndex = std::unordered_map<std::string, size_t>;

  std::optional<std::string> sought(const Value& key) const;
  std::optional<size_t> find_sought(uint32_t node, const std::string& key);

  std::unordered_map<uint32_t, PairIndex> pair_indices_;  // by node
};

}  // namespace ferry
