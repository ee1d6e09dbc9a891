// How the instances of a pickle were made. A checkpoint's metadata has hundreds of thousands of
// them that were made alike: those share one making.
#include "ckpt/format/pickle/pickle_builder.h"
#include "ckpt/format/pickle/pickle_constructors.h"

namespace ferry {

PickleBuilder::Callable& PickleBuilder::callable(uint32_t node) {
  const auto [found, is_new] = callables_.try_emplace(node);
  if (is_new && at(node).kind == ValueKind::global) {
    found->second.constructor = pickle_constructor(document_->texts[at(node).text]);
  }
  return found->second;
}

uint32_t PickleBuilder::add_making(Making making) {
  document_->makings.push_back(std::move(making));
  return static_cast<uint32_t>(document_->makings.size() - 1);
}

// Text of what is called: of an object (a method) that of its own constructor.
uint32_t PickleBuilder::callable_text(uint32_t node) const {
  return at(node).kind == ValueKind::global ? at(node).text
                                            : document_->makings[at(node).making()].text;
}

uint32_t PickleBuilder::making_of(uint32_t node, Making::Call call) {
  Callable& known = callable(node);
  uint32_t& making = call == Making::Call::function ? known.function : known.new_instance;
  if (making == 0) {
    making = add_making({.call = call,
                         .text = callable_text(node),
                         .callable = node,
                         .own_arguments = {},
                         .steps = {}});
  }
  return making;
}

uint32_t PickleBuilder::container_making(uint32_t node) {
  uint32_t& making = callable(node).container;
  if (making == 0) {
    making = add_making({.call = Making::Call::function,
                         .apart = true,
                         .text = callable_text(node),
                         .callable = node,
                         .own_arguments = {},
                         .steps = {}});
  }
  return making;
}

uint32_t PickleBuilder::persistent_making(bool is_tuple) {
  uint32_t& making = persistent_makings_[is_tuple];
  if (making == 0) {
    const auto call = is_tuple ? Making::Call::persistent_id_tuple : Making::Call::persistent_id;
    making = add_making(
        {.call = call, .text = add_text("persistent_id"), .own_arguments = {}, .steps = {}});
  }
  return making;
}

uint32_t PickleBuilder::with_state(uint32_t making) {
  if (making >= stated_.size()) stated_.resize(document_->makings.size(), 0);
  if (stated_[making] == 0) {
    Making stated = document_->makings[making];
    stated.steps = {{Making::Step::Kind::state, Making::kRest}};
    stated_[making] = add_making(std::move(stated));
  }
  return stated_[making];
}

// To be called before the node gets what the step says.
void PickleBuilder::add_step(uint32_t node, Making::Step::Kind kind, size_t count) {
  ValueNode& target = document_->nodes[node];
  if (document_->makings[target.making()].shared) {
    Making own = document_->makings[target.making()];
    own.shared = false;
    for (Making::Step& step : own.steps) {
      if (step.count == Making::kRest) step.count = target.pairs.count / 2;
    }
    target.text = add_making(std::move(own));
  }
  Making& making = document_->makings[target.making()];
  const bool of_items = kind == Making::Step::Kind::items;
  if (of_items && making.arguments == Making::kRest) making.arguments = target.items.count;
  const bool goes_on = (of_items || kind == Making::Step::Kind::pairs) && !making.steps.empty() &&
                       making.steps.back().kind == kind;
  if (!goes_on) making.steps.push_back({kind, 0});
  making.steps.back().count += static_cast<uint32_t>(count);
}

}  // namespace ferry
