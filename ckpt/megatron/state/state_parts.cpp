#include "ckpt/megatron/state/state_parts.h"

#include <algorithm>
#include <unordered_map>

#include "ckpt/base/error.h"
#include "ckpt/megatron/optimizer/optimizer_entries.h"

namespace ferry {

StateParts::StateParts(const RunState& state) {
  std::unordered_map<std::string_view, uint32_t> numbers;
  for (const StateTensor& tensor : state.tensors) {
    if (tensor.role != Role::model) continue;
    numbers.emplace(tensor.name, static_cast<uint32_t>(tensors_.size()));
    tensors_.push_back({tensor.name, tensor.shape, tensor.dtype});
    model_.push_back({&tensor, RecipeCutter(tensor.recipe, tensor.shape)});
  }
  for (const StateTensor& tensor : state.tensors) {
    if (tensor.role != Role::optimizer) continue;
    const auto name = parse_optimizer_entry_name(tensor.name);
    const auto at = name ? numbers.find(name->key) : numbers.end();
    if (at == numbers.end() || tensors_[at->second].shape != tensor.shape) {
      fail(ErrorKind::mismatch, "{} of shape {} belongs to no tensor of the model", tensor.name,
           to_string(tensor.shape));
    }
    const auto kind = std::ranges::find(kinds_, name->state);
    const size_t position = kind - kinds_.begin();
    if (kind == kinds_.end()) {
      kinds_.emplace_back(name->state);
      optimizer_.emplace_back();
    }
    optimizer_[position].emplace(at->second,
                                 Part{&tensor, RecipeCutter(tensor.recipe, tensor.shape)});
  }
  if (!kinds_.empty()) add_masters();
}

void StateParts::add_masters() {
  const size_t position = std::ranges::find(kinds_, "param") - kinds_.begin();
  if (position == kinds_.size()) {
    kinds_.emplace_back("param");
    optimizer_.emplace_back();
  }
  for (uint32_t tensor = 0; tensor < tensors_.size(); ++tensor) {
    Part part = model_[tensor];
    part.of_model = true;
    optimizer_[position].emplace(tensor, std::move(part));
  }
}

const StateParts::Part& StateParts::optimizer(size_t kind, uint32_t tensor) const {
  const auto at = optimizer_.at(kind).find(tensor);
  if (at != optimizer_[kind].end()) return at->second;
  fail(ErrorKind::mismatch,
       "the optimizer has no {} of {}, as it has of other parameters; to write the model without "
       "the optimizer's state: --optimizer none",
       kinds_[kind], tensors_.at(tensor).name);
}

void StateParts::count_again(const Recipe& recipe, size_t first_move) {
  for (size_t i = first_move; i < recipe.moves.size(); ++i) {
    again_[recipe.inputs[recipe.moves[i].input]] += recipe.moves[i].elements();
  }
}

std::vector<Dropped> StateParts::repeated() const {
  std::vector<Dropped> dropped;
  for (const auto& [entry, elements] : again_) dropped.push_back({entry, -elements});
  return dropped;
}

}  // namespace ferry
