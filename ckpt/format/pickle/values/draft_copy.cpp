// Deep copies of values of other documents, without recursion.
#include <algorithm>

#include "ckpt/base/error.h"
#include "ckpt/format/pickle/values/draft_state.h"

namespace ferry {
namespace {

// Ranges that nodes share in a document are copied for each of them: a hostile one would grow.
constexpr uint64_t kMostGrowth = 16, kAllowedSlots = 1 << 20;

}  // namespace

class Draft::State::Copier {
 public:
  Copier(State& state, const Document& from, Copies& copies)
      : state_(state), from_(from), copies_(copies) {}

  uint32_t copy(uint32_t root) {
    const uint32_t node = reserve(root);
    while (!todo_.empty()) {
      const auto [old, fresh] = todo_.back();
      todo_.pop_back();
      fill(old, fresh);
    }
    return node;
  }

 private:
  // Our node for theirs; its content follows later.
  uint32_t reserve(uint32_t old) {
    const ValueNode& node = from_.nodes.at(old);
    if (node.kind == ValueKind::none) return kNone;
    if (node.kind == ValueKind::boolean) return node.number ? kTrue : kFalse;
    const auto [at, is_new] = copies_.nodes.try_emplace(old, 0);
    if (!is_new) return at->second;
    if (node.kind == ValueKind::global) {
      const std::string_view text = from_.texts[node.text];
      const auto module = static_cast<size_t>(node.number);
      return at->second = state_.global(text.substr(0, module), text.substr(module + 1));
    }
    at->second = state_.add({.kind = node.kind, .number = node.number});
    todo_.emplace_back(old, at->second);
    return at->second;
  }

  void fill(uint32_t number, uint32_t fresh) {
    const ValueNode& old = from_.nodes[number];
    const uint32_t text = old.has_reduction() ? reduction(old.reduction()) : this->text(old.text);
    const auto items = range(old.items), pairs = range(old.pairs);
    ValueNode& node = state_.at(fresh);
    node.text = text;
    node.items = items;
    node.pairs = pairs;
    if (old.kind == ValueKind::tensor) node.number = tensor(old.number);
    if (old.kind == ValueKind::object) rename_storage(number, items);
  }

  ValueNode::Range range(ValueNode::Range old) {
    copies_.slots += old.count;
    if (copies_.slots > kMostGrowth * from_.slots.size() + kAllowedSlots) {
      fail(ErrorKind::exhausted,
           "a value's parts are shared so often that a copy would grow far beyond it; no "
           "checkpoint does that");
    }
    ValueNode::Range fresh{static_cast<uint32_t>(state_.document->slots.size()), old.count};
    for (uint32_t i = 0; i < old.count; ++i) {
      const uint32_t node = reserve(from_.slots[old.begin + i]);
      state_.document->slots.push_back(node);
    }
    return fresh;
  }

  uint32_t text(uint32_t old) {
    if (old == 0) return 0;
    uint32_t& fresh = copies_.texts[old];
    if (fresh == 0) fresh = state_.add_text(from_.texts[old]);
    return fresh;
  }

  uint32_t reduction(uint32_t old) {
    if (old == 0) return 0;
    if (const auto at = copies_.reductions.find(old); at != copies_.reductions.end())
      return at->second;
    Reduction fresh = from_.reductions[old];
    fresh.text = text(fresh.text);
    fresh.callable = reserve(fresh.callable);
    fresh.own_arguments = range(fresh.own_arguments);
    auto& ours = state_.document->reductions;
    ours.push_back(std::move(fresh));
    return copies_.reductions[old] = static_cast<uint32_t>(ours.size() - 1);
  }

  int64_t tensor(int64_t old) {
    const auto [at, is_new] = copies_.tensors.try_emplace(old, 0);
    if (is_new) {
      StoredTensor fresh = from_.tensors[old];
      const auto bytes = static_cast<uint64_t>(fresh.storage_elements) *
                         static_cast<uint64_t>(size_bytes(fresh.dtype));
      fresh.storage_key = storage(fresh.storage_key, bytes);
      state_.document->tensors.push_back(std::move(fresh));
      at->second = static_cast<int64_t>(state_.document->tensors.size() - 1);
    }
    return at->second;
  }

  // Our key for their storage, with its bytes where they are held.
  std::string storage(const std::string& old, uint64_t bytes) {
    const auto [at, is_new] = copies_.storages.try_emplace(old);
    if (is_new) {
      at->second = std::to_string(state_.storage_bytes.size());
      const auto held = from_.storages.find(old);
      state_.storage_bytes.push_back(held == from_.storages.end() ? bytes : held->second.size());
      if (held != from_.storages.end()) state_.document->storages[at->second] = held->second;
    }
    return at->second;
  }

  // The id of what the archive stores has another key here.
  void rename_storage(uint32_t old, ValueNode::Range items) {
    const auto id = storage_id(from_.root_at(old));
    if (!id) return;
    const uint32_t text = state_.add_text(storage(std::string(id->key), id->bytes));
    const uint32_t key = state_.add({.kind = ValueKind::string, .text = text});
    state_.document->slots[items.begin + 2] = key;
  }

  State& state_;
  const Document& from_;
  Copies& copies_;
  std::vector<std::pair<uint32_t, uint32_t>> todo_;
};

uint32_t Draft::State::copy(const Value& value) {
  const Document& from = *value.document();
  auto owner = from.weak_from_this().lock();
  if (!owner) {
    Copies once;
    return Copier(*this, from, once).copy(value.node());
  }
  Copies& known = copies[&from];
  known.owner = std::move(owner);
  return Copier(*this, from, known).copy(value.node());
}

}  // namespace ferry
