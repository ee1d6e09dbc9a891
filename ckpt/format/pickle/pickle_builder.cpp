#include "ckpt/format/pickle/pickle_builder.h"

#include <algorithm>
#include <bit>

#include "ckpt/base/error.h"
#include "ckpt/base/utf8.h"
#include "ckpt/format/pickle/pickle_constructors.h"

namespace ferry {

void PicklePosition::corrupt(std::string_view problem) const {
  fail(ErrorKind::corrupt, "{}: pickle at byte {}: {}; the file is damaged", what, offset, problem);
}

void PicklePosition::unsupported(std::string_view problem) const {
  fail(ErrorKind::unsupported, "{}: pickle at byte {}: {}", what, offset, problem);
}

PickleBuilder::PickleBuilder(uint64_t pickle_bytes, PickleLimits limits,
                             const PicklePosition& position)
    : position_(position),
      limits_(limits),
      copy_budget_(16 * std::min<uint64_t>(pickle_bytes, uint64_t{1} << 56) + (64 << 10)),
      document_(std::make_shared<Document>()) {
  // About what metadata pickles come to; a guess too low only costs a copy.
  const uint64_t guess =
      std::min({pickle_bytes / 8, limits.nodes, uint64_t{1} << 20}) + kFixedNodes;
  document_->nodes.reserve(guess);
  document_->slots.reserve(guess);
  document_->nodes.resize(kFixedNodes);
  document_->nodes[kTrue] = {.kind = ValueKind::boolean, .number = 1};
  document_->nodes[kFalse] = {.kind = ValueKind::boolean, .number = 0};
  document_->nodes[kEmptyTuple] = {.kind = ValueKind::tuple};
}

uint32_t PickleBuilder::add(ValueNode node) {
  auto& nodes = document_->nodes;
  if (nodes.size() >= std::min<uint64_t>(limits_.nodes, UINT32_MAX)) {
    fail(ErrorKind::exhausted, "{}: pickle at byte {}: more than {} values", position_.what,
         position_.offset, limits_.nodes);
  }
  nodes.push_back(node);
  return static_cast<uint32_t>(nodes.size() - 1);
}

uint32_t PickleBuilder::add_text(std::string text) {
  if (text.empty()) return 0;
  text_bytes_ += text.size();
  if (text_bytes_ > limits_.bytes) {
    fail(ErrorKind::exhausted, "{}: pickle at byte {}: more than {} bytes of text", position_.what,
         position_.offset, limits_.bytes);
  }
  document_->texts.push_back(std::move(text));
  return static_cast<uint32_t>(document_->texts.size() - 1);
}

void PickleBuilder::charge_copy(uint64_t bytes) {
  if (bytes > copy_budget_) {
    fail(ErrorKind::exhausted,
         "{}: pickle at byte {}: its values refer to each other so often that they would grow far "
         "beyond the pickle; no checkpoint does that",
         position_.what, position_.offset);
  }
  copy_budget_ -= bytes;
}

uint32_t PickleBuilder::integer(int64_t value) {
  const bool is_small = value >= 0 && value < 256;
  if (is_small && small_integers_[value] != 0) return small_integers_[value];
  const uint32_t node = add({.kind = ValueKind::integer, .number = value});
  if (is_small) small_integers_[value] = node;
  return node;
}

uint32_t PickleBuilder::real(double value) {
  return add({.kind = ValueKind::real, .number = std::bit_cast<int64_t>(value)});
}

uint32_t PickleBuilder::text_node(ValueKind kind, std::string text) {
  return add({.kind = kind, .text = add_text(std::move(text))});
}

uint32_t PickleBuilder::string(std::string_view utf8) {
  if (utf8_prefix(utf8, true) != utf8.size()) position_.corrupt("a string is not UTF-8");
  return text_node(ValueKind::string, std::string(utf8));
}

uint32_t PickleBuilder::tuple(std::span<const uint32_t> items) {
  if (items.empty()) return kEmptyTuple;
  ValueNode node{.kind = ValueKind::tuple};
  auto& slots = document_->slots;
  if (slots.size() + items.size() > UINT32_MAX) position_.unsupported("more than 2^32 elements");
  node.items = {static_cast<uint32_t>(slots.size()), static_cast<uint32_t>(items.size())};
  slots.insert(slots.end(), items.begin(), items.end());
  return add(node);
}

uint32_t PickleBuilder::container(ValueKind kind) { return add({.kind = kind}); }

uint32_t PickleBuilder::shared(ValueKind kind, uint32_t text, Range range) {
  return add({.kind = kind, .text = text, .items = range});
}

uint32_t PickleBuilder::global(std::string_view module_and_name) {
  const auto [at, is_new] = globals_.try_emplace(std::string(module_and_name), 0);
  if (is_new) {
    if (utf8_prefix(module_and_name, true) != module_and_name.size()) {
      position_.corrupt("the name of a class is not UTF-8");
    }
    at->second = text_node(ValueKind::global, at->first);
    document_->nodes[at->second].number = pickle_constructor(at->first);
  }
  return at->second;
}

uint32_t PickleBuilder::global(uint32_t module, uint32_t name) {
  if (at(module).kind != ValueKind::string || at(name).kind != ValueKind::string) {
    position_.corrupt("a class is named by something other than strings");
  }
  const uint64_t key = uint64_t{at(module).text} << 32 | at(name).text;
  const auto [found, is_new] = joined_globals_.try_emplace(key, 0);
  if (is_new) {
    const auto& texts = document_->texts;
    charge_copy(texts[at(module).text].size() + texts[at(name).text].size());
    found->second = global(texts[at(module).text] + "." + texts[at(name).text]);
  }
  return found->second;
}

uint32_t PickleBuilder::persistent_id(uint32_t id) {
  const bool is_tuple = at(id).kind == ValueKind::tuple;
  static constexpr std::string_view kName = "persistent_id";
  ValueNode node{
      .kind = ValueKind::object, .text = at(global(kName)).text, .number = kPersistentId};
  if (is_tuple) {
    node.items = at(id).items;
  } else {
    *extend(node.items, node.owns_items, 1) = id;
  }
  return add(node);
}

// Growth in place when the range ends the pool or has room left; its capacity is the next power of
// two of its count. A range that is moved leaves its old slots behind, so that others may share
// them.
uint32_t* PickleBuilder::extend(Range& range, bool& owned, size_t more) {
  auto& slots = document_->slots;
  const uint64_t count = uint64_t{range.count} + more;
  const uint64_t held = !owned ? range.count : range.count == 0 ? 0 : std::bit_ceil(range.count);
  if (count > held) {
    const uint64_t capacity = std::bit_ceil(count);
    const bool is_last = owned && range.begin + held == slots.size();
    const uint64_t begin = is_last ? range.begin : slots.size();
    if (begin + capacity > UINT32_MAX) position_.unsupported("more than 2^32 elements");
    if (!owned) charge_copy(uint64_t{range.count} * sizeof(uint32_t));
    slots.resize(begin + capacity);
    if (!is_last) std::copy_n(slots.begin() + range.begin, range.count, slots.begin() + begin);
    range.begin = static_cast<uint32_t>(begin);
    owned = true;
  }
  uint32_t* fresh = slots.data() + range.begin + range.count;
  range.count = static_cast<uint32_t>(count);
  return fresh;
}

void PickleBuilder::append_range(Range& range, bool& owned, Range more) {
  charge_copy(uint64_t{more.count} * sizeof(uint32_t));
  uint32_t* fresh = extend(range, owned, more.count);
  std::copy_n(document_->slots.data() + more.begin, more.count, fresh);
}

void PickleBuilder::append(uint32_t node, std::span<const uint32_t> items) {
  ValueNode& target = document_->nodes[node];
  if (target.kind != ValueKind::list && target.kind != ValueKind::set &&
      target.kind != ValueKind::object) {
    position_.corrupt("elements are added to something that is not a list");
  }
  if (items.empty()) return;
  std::copy(items.begin(), items.end(), extend(target.items, target.owns_items, items.size()));
}

void PickleBuilder::set_items(uint32_t node, std::span<const uint32_t> keys_and_values) {
  ValueNode& target = document_->nodes[node];
  if (target.kind != ValueKind::dict && target.kind != ValueKind::object) {
    position_.corrupt("items are set in something that is not a dict");
  }
  if (keys_and_values.size() % 2 != 0) position_.corrupt("a dict gets a key without a value");
  if (keys_and_values.empty()) return;
  std::copy(keys_and_values.begin(), keys_and_values.end(),
            extend(target.pairs, target.owns_pairs, keys_and_values.size()));
}

void PickleBuilder::attach_state(uint32_t node, uint32_t state_dict) {
  ValueNode& target = document_->nodes[node];
  const Range pairs = at(state_dict).pairs;
  if (target.pairs.count == 0) {
    target.pairs = pairs;
    target.owns_pairs = false;
  } else if (pairs.count > 0) {
    append_range(target.pairs, target.owns_pairs, pairs);
  }
}

void PickleBuilder::set_state(uint32_t node, uint32_t state) {
  const ValueKind kind = at(node).kind;
  if (kind == ValueKind::tensor)
    return;  // attributes of a tensor: nothing of a checkpoint's content
  if (kind == ValueKind::dict) {
    ValueNode& target = document_->nodes[node];
    target.items = {};
    target.owns_items = false;
    *extend(target.items, target.owns_items, 1) = state;
    return;
  }
  if (kind != ValueKind::object) position_.corrupt("state is given to something that has none");
  const auto is_dict = [&](uint32_t n) { return at(n).kind == ValueKind::dict; };
  const auto is_none = [&](uint32_t n) { return at(n).kind == ValueKind::none; };
  if (is_dict(state)) return attach_state(node, state);
  if (at(state).kind == ValueKind::tuple && at(state).items.count == 2) {
    const uint32_t attributes = items(at(state))[0], slots_dict = items(at(state))[1];
    const bool both = (is_dict(attributes) || is_none(attributes)) && is_dict(slots_dict);
    if (both) {
      if (is_dict(attributes)) attach_state(node, attributes);
      return attach_state(node, slots_dict);
    }
  }
  if (state_key_ == 0) state_key_ = text_node(ValueKind::string, "__state__");
  const uint32_t pair[] = {state_key_, state};
  set_items(node, pair);
}

std::shared_ptr<const Document> PickleBuilder::finish(uint32_t root) {
  document_->root_node = root;
  return std::move(document_);
}

}  // namespace ferry
