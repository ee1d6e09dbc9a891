// How the instances of a pickle were made. A checkpoint's metadata has hundreds of thousands of
// them that were made alike: those share one reduction.
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

uint32_t PickleBuilder::add_reduction(Reduction reduction) {
  document_->reductions.push_back(std::move(reduction));
  return static_cast<uint32_t>(document_->reductions.size() - 1);
}

// Text of what is called: of an object (a method) that of its own constructor.
uint32_t PickleBuilder::callable_text(uint32_t node) const {
  return at(node).kind == ValueKind::global ? at(node).text
                                            : document_->reductions[at(node).reduction()].text;
}

uint32_t PickleBuilder::reduction_of(uint32_t node, Reduction::Call call) {
  Callable& known = callable(node);
  uint32_t& reduction = call == Reduction::Call::function ? known.function : known.new_instance;
  if (reduction == 0) {
    reduction = add_reduction({.call = call,
                               .text = callable_text(node),
                               .callable = node,
                               .own_arguments = {},
                               .steps = {}});
  }
  return reduction;
}

uint32_t PickleBuilder::container_reduction(uint32_t node) {
  uint32_t& reduction = callable(node).container;
  if (reduction == 0) {
    reduction = add_reduction({.call = Reduction::Call::function,
                               .apart = true,
                               .text = callable_text(node),
                               .callable = node,
                               .own_arguments = {},
                               .steps = {}});
  }
  return reduction;
}

uint32_t PickleBuilder::persistent_reduction(bool is_tuple) {
  uint32_t& reduction = persistent_reductions_[is_tuple];
  if (reduction == 0) {
    const auto call =
        is_tuple ? Reduction::Call::persistent_id_tuple : Reduction::Call::persistent_id;
    reduction = add_reduction(
        {.call = call, .text = add_text("persistent_id"), .own_arguments = {}, .steps = {}});
  }
  return reduction;
}

uint32_t PickleBuilder::with_state(uint32_t reduction) {
  if (reduction >= stated_.size()) stated_.resize(document_->reductions.size(), 0);
  if (stated_[reduction] == 0) {
    Reduction stated = document_->reductions[reduction];
    stated.steps = {{Reduction::Step::Kind::state, Reduction::kRest}};
    stated_[reduction] = add_reduction(std::move(stated));
  }
  return stated_[reduction];
}

// To be called before the node gets what the step says.
void PickleBuilder::add_step(uint32_t node, Reduction::Step::Kind kind, size_t count) {
  ValueNode& target = document_->nodes[node];
  if (document_->reductions[target.reduction()].shared) {
    Reduction own = document_->reductions[target.reduction()];
    own.shared = false;
    for (Reduction::Step& step : own.steps) {
      if (step.count == Reduction::kRest) step.count = target.pairs.count / 2;
    }
    target.text = add_reduction(std::move(own));
  }
  Reduction& reduction = document_->reductions[target.reduction()];
  const bool of_items = kind == Reduction::Step::Kind::items;
  if (of_items && reduction.arguments == Reduction::kRest) reduction.arguments = target.items.count;
  const bool goes_on = (of_items || kind == Reduction::Step::Kind::pairs) &&
                       !reduction.steps.empty() && reduction.steps.back().kind == kind;
  if (!goes_on) reduction.steps.push_back({kind, 0});
  reduction.steps.back().count += static_cast<uint32_t>(count);
}

}  // namespace ferry
