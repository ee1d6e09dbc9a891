// Builds the Document of a pickle: creates nodes, grows containers, understands constructors.
//
// Nothing is copied when a pickle refers to a value again: nodes are numbers, tuples and states are
// shared ranges. Where a copy cannot be avoided (appending to a shared range, joining strings) it
// is charged to a budget proportional to the pickle's length, and so is every further use of a
// range, so that memory and time stay linear in it, here and for whoever walks all nodes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ckpt/format/pickle/pickle.h"
#include "ckpt/format/pickle/values/value.h"

namespace ferry {

/// Where the parser is, for messages.
struct PicklePosition {
  std::string_view what;
  uint64_t offset = 0;  // of the opcode at work

  [[noreturn]] void corrupt(std::string_view problem) const;
  [[noreturn]] void unsupported(std::string_view problem) const;
};

class PickleBuilder {
 public:
  using Range = ValueNode::Range;

  PickleBuilder(uint64_t pickle_bytes, PickleLimits limits, const PicklePosition& position);

  uint32_t none() const noexcept { return kNone; }
  uint32_t boolean(bool value) const noexcept { return value ? kTrue : kFalse; }
  uint32_t integer(int64_t value);
  uint32_t real(double value);
  uint32_t string(std::string_view utf8);  // corrupt when it is not UTF-8
  uint32_t text_node(ValueKind kind, std::string text);
  uint32_t tuple(std::span<const uint32_t> items);
  uint32_t container(ValueKind kind);  // an empty list, set or dict
  uint32_t frozen_set(std::span<const uint32_t> items);
  uint32_t byte_array(std::string bytes);
  uint32_t global(std::string_view module, std::string_view name);
  uint32_t global(uint32_t module, uint32_t name);  // two string nodes
  uint32_t persistent_id(uint32_t id);

  /// Adds to a list, set or object; to a dict or object (keys and values in turn).
  void append(uint32_t node, std::span<const uint32_t> items);
  void set_items(uint32_t node, std::span<const uint32_t> keys_and_values);

  /// callable(*args) or class.__new__(class, *args), the latter also with keywords.
  uint32_t construct(uint32_t callable, uint32_t args, Reduction::Call call);
  uint32_t construct_with_keywords(uint32_t callable, uint32_t args, uint32_t keywords);
  /// node.__setstate__(state)
  void set_state(uint32_t node, uint32_t state);

  std::shared_ptr<const Document> finish(uint32_t root);

 private:
  enum Fixed : uint32_t { kNone, kTrue, kFalse, kEmptyTuple, kFixedNodes };

  // What is known of a class or function that is called.
  struct Callable {
    int constructor = 0;                                     // PickleConstructor
    uint32_t function = 0, new_instance = 0, container = 0;  // reductions without steps; 0: not yet
  };

  const ValueNode& at(uint32_t node) const { return document_->nodes[node]; }
  // What the node says, where it is of that kind; the texts of other kinds are not texts of theirs.
  std::optional<std::string_view> text_of(uint32_t node, ValueKind kind) const {
    if (at(node).kind != kind) return std::nullopt;
    return document_->texts[at(node).text];
  }
  std::span<const uint32_t> items(const ValueNode& node) const { return slots(node.items); }
  std::span<const uint32_t> slots(Range range) const {
    return {document_->slots.data() + range.begin, range.count};
  }
  uint32_t add(ValueNode node);
  uint32_t add_text(std::string text);
  uint32_t* extend(Range& range, bool& owned, size_t more);
  void append_range(Range& range, bool& owned, Range more);
  void check_is_made_here(uint32_t node) const;
  void add_pairs(uint32_t node, std::span<const uint32_t> keys_and_values);
  void share_pairs(uint32_t node, uint32_t dict);
  void attach_state(uint32_t node, uint32_t dict, Reduction::Step::Kind kind);
  void charge_copy(uint64_t bytes);
  void charge_sharing(Range range);

  // pickle_reductions.cpp
  Callable& callable(uint32_t node);
  uint32_t add_reduction(Reduction reduction);
  uint32_t callable_text(uint32_t node) const;
  uint32_t reduction_of(uint32_t callable, Reduction::Call call);
  uint32_t container_reduction(uint32_t callable);
  uint32_t with_state(uint32_t reduction);
  uint32_t persistent_reduction(bool is_tuple);
  void add_step(uint32_t node, Reduction::Step::Kind kind, size_t count);

  // pickle_constructors.cpp
  void check_call(uint32_t callable, uint32_t args) const;
  uint32_t object(uint32_t callable, Range args, Reduction::Call call = Reduction::Call::function);
  uint32_t make_dict(uint32_t callable, Range args);
  uint32_t make_set(uint32_t callable, Range args);
  uint32_t make_size(uint32_t callable, Range args);
  uint32_t make_bytes(uint32_t callable, Range args);
  uint32_t make_attribute(uint32_t callable, Range args);
  uint32_t reconstruct(uint32_t callable, Range args);
  uint32_t make_parameter(uint32_t callable, Range args);
  uint32_t make_typed_tensor(uint32_t callable, Range args);
  std::optional<StoredTensor> read_tensor(int constructor, Range args);
  uint32_t tensor(int64_t number, uint32_t callable, Range args);
  uint32_t add_tensor(StoredTensor tensor, uint32_t callable, Range args);
  Dims make_dims(uint32_t node) const;
  MathBits math_bits(uint32_t metadata) const;
  int64_t non_negative(uint32_t node, std::string_view what) const;

  const PicklePosition& position_;
  PickleLimits limits_;
  uint64_t copy_budget_;
  uint64_t text_bytes_ = 0;
  std::shared_ptr<Document> document_;
  std::unordered_map<std::string, uint32_t> globals_;      // by length of the module and text
  std::unordered_map<uint64_t, uint32_t> joined_globals_;  // by text numbers of module and name
  std::unordered_map<uint32_t, Callable> callables_;       // by node
  std::vector<uint32_t> stated_;  // by reduction: the same with a state; 0: not yet
  uint32_t small_integers_[256] = {};
  uint32_t state_key_ = 0;
  uint32_t persistent_reductions_[2] = {};
};

}  // namespace ferry
