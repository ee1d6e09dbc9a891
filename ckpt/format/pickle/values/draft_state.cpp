#include "ckpt/format/pickle/values/draft_state.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

// Containers of fewer pairs are searched.
constexpr size_t kIndexedPairs = 16;

// One map holds both kinds of reductions: called with nothing done yet, and the same with a state.
constexpr uint64_t kStated = uint64_t{1} << 63;

std::string global_key(std::string_view module, std::string_view name) {
  std::string key = std::to_string(module.size());
  return (((key += ':') += module) += '.') += name;
}

}  // namespace

Draft::State::State() : document(std::make_shared<Document>()) {
  document->nodes.resize(kFixedNodes);
  document->nodes[kTrue] = {.kind = ValueKind::boolean, .number = 1};
  document->nodes[kFalse] = {.kind = ValueKind::boolean, .number = 0};
}

uint32_t Draft::State::add(ValueNode node) {
  if (document->nodes.size() >= UINT32_MAX) {
    fail(ErrorKind::exhausted, "a value has more than 2^32 parts");
  }
  document->nodes.push_back(node);
  return static_cast<uint32_t>(document->nodes.size() - 1);
}

uint32_t Draft::State::add_text(std::string text) {
  if (text.empty()) return 0;
  document->texts.push_back(std::move(text));
  return static_cast<uint32_t>(document->texts.size() - 1);
}

uint32_t Draft::State::global(std::string_view module, std::string_view name) {
  const auto [at, is_new] = globals.try_emplace(global_key(module, name), 0);
  if (is_new) {
    const uint32_t text = add_text((std::string(module) += '.') += name);
    at->second = add(
        {.kind = ValueKind::global, .text = text, .number = static_cast<int64_t>(module.size())});
  }
  return at->second;
}

Value Draft::State::container(ValueKind kind, uint32_t reduction, const std::vector<Value>& items) {
  std::vector<uint32_t> nodes;
  nodes.reserve(items.size());
  for (const Value& item : items) nodes.push_back(own(item));
  ValueNode node{.kind = kind, .text = reduction};
  if (!nodes.empty()) {
    std::copy(nodes.begin(), nodes.end(),
              document->extend(node.items, node.owns_items, nodes.size()));
  }
  return value(add(node));
}

uint32_t Draft::State::own(const Value& value) {
  if (!value.document()) return kNone;
  return value.document() == document.get() ? value.node() : copy(value);
}

uint32_t Draft::State::own_container(const Value& value, std::initializer_list<ValueKind> kinds) {
  if (value.document() != document.get()) {
    fail(ErrorKind::invalid, "a value of another document cannot be changed; copy it first");
  }
  if (std::find(kinds.begin(), kinds.end(), value.kind()) == kinds.end()) {
    fail(ErrorKind::invalid, "a value of kind {} cannot be changed so",
         static_cast<int>(value.kind()));
  }
  return value.node();
}

uint32_t Draft::State::reduction_of(uint32_t callable, Reduction::Call call, bool apart) {
  const uint64_t key = uint64_t{callable} << 8 | static_cast<uint64_t>(call) << 1 | apart;
  uint32_t& reduction = reductions[{key, 0}];
  if (reduction == 0) {
    const bool is_global = at(callable).kind == ValueKind::global;
    Reduction fresh;
    fresh.call = call;
    fresh.apart = apart;
    fresh.text = is_global ? at(callable).text : this->reduction(callable).text;
    fresh.callable = callable;
    document->reductions.push_back(std::move(fresh));
    reduction = static_cast<uint32_t>(document->reductions.size() - 1);
  }
  return reduction;
}

uint32_t Draft::State::container_reduction(std::string_view module, std::string_view name) {
  return reduction_of(global(module, name), Reduction::Call::function, true);
}

Reduction& Draft::State::own_reduction(uint32_t node) {
  if (reduction(node).shared) {
    Reduction own = reduction(node);
    own.shared = false;
    for (Reduction::Step& step : own.steps) {
      if (step.count == Reduction::kRest) step.count = at(node).pairs.count / 2;
    }
    document->reductions.push_back(std::move(own));
    at(node).text = static_cast<uint32_t>(document->reductions.size() - 1);
  }
  return document->reductions[at(node).reduction()];
}

void Draft::State::count_item(uint32_t object) {
  Reduction& own = own_reduction(object);
  if (own.arguments == Reduction::kRest) own.arguments = at(object).items.count;
  using Kind = Reduction::Step::Kind;
  if (own.steps.empty() || own.steps.back().kind != Kind::items) {
    own.steps.push_back({Kind::items, 0});
  }
  ++own.steps.back().count;
}

void Draft::State::count_attribute(uint32_t object) {
  using Kind = Reduction::Step::Kind;
  const Reduction& known = reduction(object);
  if (known.shared && known.steps.empty()) {
    uint32_t& stated = reductions[{kStated, at(object).reduction()}];
    if (stated == 0) {
      Reduction with_state = known;
      with_state.steps = {{Kind::state, Reduction::kRest}};
      document->reductions.push_back(std::move(with_state));
      stated = static_cast<uint32_t>(document->reductions.size() - 1);
    }
    at(object).text = stated;
    return;
  }
  if (known.shared) return;  // a state, of all that there is
  auto& steps = own_reduction(object).steps;
  auto last = std::find_if(steps.rbegin(), steps.rend(),
                           [](const Reduction::Step& step) { return step.kind != Kind::items; });
  if (last != steps.rend() && (last->kind == Kind::state || last->kind == Kind::slots)) {
    ++last->count;
  } else {
    steps.push_back({Kind::state, 1});
  }
}

// What keys that are equal have in common; nothing for one that equals none here.
std::optional<std::string> Draft::State::sought(const Value& key) const {
  const auto number = [](char kind, int64_t bits) { return kind + std::to_string(bits); };
  switch (key.kind()) {
    case ValueKind::none:
      return "N";
    case ValueKind::boolean:
      return number('?', *key.integer());
    case ValueKind::integer:
      return number('i', *key.integer());
    case ValueKind::real:
      if (std::isnan(*key.real())) break;
      return number('r', std::bit_cast<int64_t>(*key.real() + 0.0));  // -0.0 equals 0.0
    case ValueKind::string:
      return 's' + key.text();
    case ValueKind::bytes:
      return 'b' + key.text();
    case ValueKind::big_integer:
      return 'I' + key.text();
    case ValueKind::global:
      return 'g' + key.text();
    default:
      break;
  }
  if (key.document() != document.get()) return std::nullopt;
  return number('#', key.node());
}

std::optional<size_t> Draft::State::find_sought(uint32_t node, const std::string& key) {
  const Value container = value(node);
  const size_t pairs = container.pair_count();
  if (pairs < kIndexedPairs) {
    for (size_t i = pairs; i-- > 0;) {
      if (sought(container.pair_key(i)) == key) return i;
    }
    return std::nullopt;
  }
  const auto [at, is_new] = pair_indices_.try_emplace(node);
  for (size_t i = 0; is_new && i < pairs; ++i) at->second[*sought(container.pair_key(i))] = i;
  const auto found = at->second.find(key);
  return found == at->second.end() ? std::nullopt : std::optional(found->second);
}

std::optional<size_t> Draft::State::find_pair(uint32_t node, std::string_view key) {
  return find_sought(node, 's' + std::string(key));
}

std::optional<size_t> Draft::State::find_pair(uint32_t node, const Value& key) {
  const auto sought_key = sought(key);
  return sought_key ? find_sought(node, *sought_key) : std::nullopt;
}

void Draft::State::note_pair(uint32_t node, uint32_t key) {
  const auto at = pair_indices_.find(node);
  if (at == pair_indices_.end()) return;
  at->second[*sought(value(key))] = value(node).pair_count();
}

void Draft::State::set_pair(uint32_t node, size_t pair, uint32_t value) {
  document->slots[at(node).pairs.begin + 2 * pair + 1] = value;
}

void Draft::State::remove_pair(uint32_t node, size_t pair) {
  pair_indices_.erase(node);
  if (at(node).kind == ValueKind::object && at(node).reduction() != 0) {
    Reduction& own = own_reduction(node);
    uint64_t before = 0;
    for (auto step = own.steps.begin(); step != own.steps.end(); ++step) {
      if (step->kind == Reduction::Step::Kind::items) continue;
      before += step->count;
      if (pair >= before) continue;
      --step->count;
      if (step->kind == Reduction::Step::Kind::other_state) own.steps.erase(step);
      break;
    }
  }
  ValueNode::Range& pairs = at(node).pairs;
  const auto begin = document->slots.begin() + pairs.begin;
  std::copy(begin + 2 * pair + 2, begin + pairs.count, begin + 2 * pair);
  pairs.count -= 2;
  at(node).owns_pairs = false;  // its capacity is not that of its count any more
}

}  // namespace ferry
