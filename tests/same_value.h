// Compares values of two documents, with all that a writer keeps of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ckpt/format/pickle/values/value.h"

namespace ferry::test {

/// Says where two values differ; empty when they do not. What is shared or cyclic in one must be so
/// in the other. Storages may have other keys.
class Comparison {
 public:
  static std::string difference(const Value& a, const Value& b) {
    Comparison comparison(a, b);
    comparison.push(a.node(), b.node());
    while (!comparison.todo_.empty() && comparison.problem_.empty()) {
      const auto [left, right] = comparison.todo_.back();
      comparison.todo_.pop_back();
      comparison.compare(left, right);
    }
    return comparison.problem_;
  }

 private:
  Comparison(const Value& a, const Value& b) : a_(*a.document()), b_(*b.document()) {}

  void differ(const std::string& what) {
    if (problem_.empty()) problem_ = what;
  }

  void push(uint32_t a, uint32_t b) {
    const ValueNode& node = a_.nodes[a];
    const bool nests = node.has_reduction() || node.kind == ValueKind::list;
    if (!nests) return compare(a, b);
    // A tuple or persistent id may be written anew wherever it stands; others are one thing.
    const bool is_id = node.kind == ValueKind::object &&
                       a_.reductions[node.reduction()].call >= Reduction::Call::persistent_id;
    const bool is_one = node.kind != ValueKind::tuple && !is_id;
    if (is_one) {
      const auto [left, is_new] = matches_.try_emplace(a, b);
      const auto [right, is_new_too] = back_matches_.try_emplace(b, a);
      if (left->second != b || right->second != a) return differ("shared in one, not in the other");
      if (!is_new) return;
    } else if (!pairs_.insert({a, b}).second) {
      return;
    }
    todo_.emplace_back(a, b);
  }

  void push(ValueNode::Range a, ValueNode::Range b) {
    if (a.count != b.count) return differ("another number of elements");
    for (uint32_t i = 0; i < a.count; ++i) push(a_.slots[a.begin + i], b_.slots[b.begin + i]);
  }

  void compare(uint32_t left, uint32_t right) {
    const ValueNode &a = a_.nodes[left], &b = b_.nodes[right];
    if (a.kind != b.kind) return differ("another kind");
    switch (a.kind) {
      case ValueKind::none:
        return;
      case ValueKind::tensor:
        return compare_tensors(a, b);
      case ValueKind::big_integer:
        return;  // decimal and hexadecimal digits; tested by values
      case ValueKind::global:
        if (plain(a_.texts[a.text]) != plain(b_.texts[b.text])) differ("another name");
        return;
      case ValueKind::string:
      case ValueKind::bytes:
        if (a_.texts[a.text] != b_.texts[b.text]) differ("another text");
        [[fallthrough]];
      case ValueKind::boolean:
      case ValueKind::integer:
      case ValueKind::real:
        if (a.number != b.number) differ("another number");
        return;
      default:
        break;
    }
    compare_reductions(left, right);
    const auto id = storage_id(a_.root_at(left));
    if (id && compare_keys(std::string(id->key), b_.root_at(right)[2].text())) {
      push({a.items.begin, 2}, {b.items.begin, 2});
      return push({a.items.begin + 3, a.items.count - 3}, {b.items.begin + 3, b.items.count - 3});
    }
    push(a.items, b.items);
    push(a.pairs, b.pairs);
  }

  bool compare_keys(const std::string& a, const std::string& b) {
    const auto [at, is_new] = keys_.try_emplace(a, b);
    if (at->second != b) differ("another storage");
    return true;
  }

  void compare_tensors(const ValueNode& left, const ValueNode& right) {
    const StoredTensor& a = a_.tensors[static_cast<size_t>(left.number)];
    const StoredTensor& b = b_.tensors[static_cast<size_t>(right.number)];
    if (a.dtype != b.dtype || a.shape != b.shape || a.strides != b.strides ||
        a.storage_offset != b.storage_offset || a.storage_elements != b.storage_elements) {
      return differ("another tensor");
    }
    compare_keys(a.storage_key, b.storage_key);
    if (left.reduction() != 0 && right.reduction() != 0) {
      push(a_.reductions[left.reduction()].own_arguments,
           b_.reductions[right.reduction()].own_arguments);
      push(left.pairs, right.pairs);
    }
  }

  // Protocol 2 has older names for two modules, and a call for a plain set.
  static std::string plain(std::string name) {
    for (const auto& [before, now] :
         {std::pair("__builtin__.", "builtins."), std::pair("copy_reg.", "copyreg.")}) {
      if (name.starts_with(before)) name = now + name.substr(std::string(before).size());
    }
    return name;
  }
  static std::string class_of(const Document& document, const ValueNode& node) {
    const std::string name = plain(document.texts[document.reductions[node.reduction()].text]);
    return node.kind == ValueKind::set && name.empty() ? "builtins.set" : name;
  }

  static std::vector<std::pair<Reduction::Step::Kind, uint32_t>> steps(const Reduction& reduction,
                                                                       const ValueNode& node) {
    std::vector<std::pair<Reduction::Step::Kind, uint32_t>> result;
    for (const Reduction::Step& step : reduction.steps) {
      result.emplace_back(step.kind,
                          step.count == Reduction::kRest ? node.pairs.count / 2 : step.count);
    }
    return result;
  }

  void compare_reductions(uint32_t left, uint32_t right) {
    const ValueNode &a = a_.nodes[left], &b = b_.nodes[right];
    if (a.kind == ValueKind::list) return;
    if (class_of(a_, a) != class_of(b_, b)) return differ("another class");
    const Reduction &x = a_.reductions[a.reduction()], &y = b_.reductions[b.reduction()];
    push(x.own_arguments, y.own_arguments);
    if (a.kind != ValueKind::object) return;
    if (x.call != y.call) differ("another call");
    if (std::min(x.arguments, a.items.count) != std::min(y.arguments, b.items.count)) {
      differ("another number of arguments");
    }
    if (steps(x, a) != steps(y, b)) differ("other steps");
    push(x.callable, y.callable);
  }

  const Document &a_, &b_;
  std::vector<std::pair<uint32_t, uint32_t>> todo_;
  std::unordered_map<uint32_t, uint32_t> matches_, back_matches_;
  std::set<std::pair<uint32_t, uint32_t>> pairs_;
  std::map<std::string, std::string> keys_;
  std::string problem_;
};

}  // namespace ferry::test
