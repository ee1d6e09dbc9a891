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

// Sharing costs no memory here, but whoever walks the document meets the elements once more.
void PickleBuilder::charge_sharing(Range range) {
  charge_copy(uint64_t{range.count} * sizeof(uint32_t));
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

uint32_t PickleBuilder::frozen_set(std::span<const uint32_t> items) {
  const uint32_t node = container(ValueKind::set);
  append(node, items);
  document_->nodes[node].text = container_reduction(global("builtins", "frozenset"));
  return node;
}

uint32_t PickleBuilder::byte_array(std::string bytes) {
  const uint32_t node = text_node(ValueKind::bytes, std::move(bytes));
  document_->nodes[node].number = 1;
  return node;
}

uint32_t PickleBuilder::global(std::string_view module, std::string_view name) {
  std::string key = std::to_string(module.size());
  const size_t text_at = key.size() + 1;
  (((key += ':') += module) += '.') += name;
  const auto [at, is_new] = globals_.try_emplace(std::move(key), 0);
  if (is_new) {
    std::string text = at->first.substr(text_at);
    if (utf8_prefix(text, true) != text.size()) {
      position_.corrupt("the name of a class is not UTF-8");
    }
    at->second = text_node(ValueKind::global, std::move(text));
    document_->nodes[at->second].number = static_cast<int64_t>(module.size());
  }
  return at->second;
}

uint32_t PickleBuilder::global(uint32_t module, uint32_t name) {
  if (at(module).kind != ValueKind::string || at(name).kind != ValueKind::string) {
    position_.corrupt("the name of a class is not a string");
  }
  const uint64_t key = uint64_t{at(module).text} << 32 | at(name).text;
  const auto [found, is_new] = joined_globals_.try_emplace(key, 0);
  if (is_new) {
    const auto& texts = document_->texts;
    charge_copy(texts[at(module).text].size() + texts[at(name).text].size());
    const std::string name_text = texts[at(name).text];  // texts may move
    found->second = global(std::string(texts[at(module).text]), name_text);
  }
  return found->second;
}

uint32_t PickleBuilder::persistent_id(uint32_t id) {
  const bool is_tuple = at(id).kind == ValueKind::tuple && at(id).reduction() == 0;
  ValueNode node{.kind = ValueKind::object, .text = persistent_reduction(is_tuple)};
  if (is_tuple) {
    node.items = at(id).items;
    charge_sharing(node.items);
  } else {
    *extend(node.items, node.owns_items, 1) = id;
  }
  return add(node);
}

uint32_t* PickleBuilder::extend(Range& range, bool& owned, size_t more) {
  if (!owned && more > 0) charge_copy(uint64_t{range.count} * sizeof(uint32_t));
  return document_->extend(range, owned, more);
}

void PickleBuilder::append_range(Range& range, bool& owned, Range more) {
  charge_copy(uint64_t{more.count} * sizeof(uint32_t));
  uint32_t* fresh = extend(range, owned, more.count);
  std::copy_n(document_->slots.data() + more.begin, more.count, fresh);
}

// What the archive around the pickle stores is not made here: no pickler changes it.
void PickleBuilder::check_is_made_here(uint32_t node) const {
  if (at(node).kind != ValueKind::object) return;
  if (document_->reductions[at(node).reduction()].call >= Reduction::Call::persistent_id) {
    position_.corrupt("something is added to a value that is stored outside of it");
  }
}

void PickleBuilder::append(uint32_t node, std::span<const uint32_t> items) {
  check_is_made_here(node);
  ValueNode& target = document_->nodes[node];
  if (target.kind != ValueKind::list && target.kind != ValueKind::set &&
      target.kind != ValueKind::object) {
    position_.corrupt("elements are added to something that is not a list");
  }
  if (items.empty()) return;
  if (target.kind == ValueKind::object) add_step(node, Reduction::Step::Kind::items, items.size());
  std::copy(items.begin(), items.end(), extend(target.items, target.owns_items, items.size()));
}

void PickleBuilder::set_items(uint32_t node, std::span<const uint32_t> keys_and_values) {
  check_is_made_here(node);
  const ValueKind kind = at(node).kind;
  if (kind != ValueKind::dict && kind != ValueKind::object) {
    position_.corrupt("items are set in something that is not a dict");
  }
  if (keys_and_values.size() % 2 != 0) position_.corrupt("a dict gets a key without a value");
  if (keys_and_values.empty()) return;
  if (kind == ValueKind::object) {
    add_step(node, Reduction::Step::Kind::pairs, keys_and_values.size() / 2);
  }
  add_pairs(node, keys_and_values);
}

void PickleBuilder::add_pairs(uint32_t node, std::span<const uint32_t> keys_and_values) {
  ValueNode& target = document_->nodes[node];
  std::copy(keys_and_values.begin(), keys_and_values.end(),
            extend(target.pairs, target.owns_pairs, keys_and_values.size()));
}

void PickleBuilder::share_pairs(uint32_t node, uint32_t dict) {
  ValueNode& target = document_->nodes[node];
  const Range pairs = at(dict).pairs;
  if (target.pairs.count == 0) {
    charge_sharing(pairs);
    target.pairs = pairs;
    target.owns_pairs = false;
  } else if (pairs.count > 0) {
    append_range(target.pairs, target.owns_pairs, pairs);
  }
}

// The usual state: a dict of attributes.
void PickleBuilder::attach_state(uint32_t node, uint32_t dict, Reduction::Step::Kind kind) {
  ValueNode& target = document_->nodes[node];
  const Reduction& reduction = document_->reductions[target.reduction()];
  const bool is_usual =
      kind == Reduction::Step::Kind::state && reduction.shared && reduction.steps.empty();
  if (is_usual) {
    target.text = with_state(target.reduction());
  } else {
    add_step(node, kind, at(dict).pairs.count / 2);
  }
  share_pairs(node, dict);
}

void PickleBuilder::set_state(uint32_t node, uint32_t state) {
  using Kind = Reduction::Step::Kind;
  check_is_made_here(node);
  const ValueKind kind = at(node).kind;
  if (kind == ValueKind::dict) {
    ValueNode& target = document_->nodes[node];
    target.items = {};
    target.owns_items = false;
    *extend(target.items, target.owns_items, 1) = state;
    return;
  }
  if (kind != ValueKind::object && kind != ValueKind::tensor) {
    position_.corrupt("state is given to something that has none");
  }
  const auto is_dict = [&](uint32_t n) { return at(n).kind == ValueKind::dict; };
  const auto is_none = [&](uint32_t n) { return at(n).kind == ValueKind::none; };
  const bool is_object = kind == ValueKind::object;
  if (is_object && is_dict(state)) return attach_state(node, state, Kind::state);
  if (is_object && at(state).kind == ValueKind::tuple && at(state).items.count == 2) {
    const uint32_t attributes = items(at(state))[0], slots_dict = items(at(state))[1];
    const bool both = (is_dict(attributes) || is_none(attributes)) && is_dict(slots_dict);
    if (both) {
      if (is_dict(attributes)) attach_state(node, attributes, Kind::attributes);
      return attach_state(node, slots_dict, Kind::slots);
    }
  }
  if (state_key_ == 0) state_key_ = text_node(ValueKind::string, "__state__");
  add_step(node, Kind::other_state, 1);
  const uint32_t pair[] = {state_key_, state};
  add_pairs(node, pair);
}

std::shared_ptr<const Document> PickleBuilder::finish(uint32_t root) {
  document_->root_node = root;
  return std::move(document_);
}

}  // namespace ferry
