#include "ckpt/megatron/state/state_parts.h"

#include <algorithm>
#include <unordered_map>

#include "ckpt/base/error.h"

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
    by_kind_of(name->state)
        .emplace(at->second, Part{&tensor, RecipeCutter(tensor.recipe, tensor.shape)});
  }
  if (!kinds_.empty()) add_masters();
}

// A new kind is put at its usual place.
std::map<uint32_t, StateParts::Part>& StateParts::by_kind_of(std::string_view kind) {
  const auto at = std::ranges::find(kinds_, kind);
  if (at != kinds_.end()) return optimizer_[at - kinds_.begin()];
  const auto before = std::ranges::upper_bound(kinds_, usual_rank(kind), {}, usual_rank);
  const auto position = before - kinds_.begin();
  kinds_.emplace(before, kind);
  return *optimizer_.emplace(optimizer_.begin() + position);
}

void StateParts::add_masters() {
  auto& masters = by_kind_of("param");
  for (uint32_t tensor = 0; tensor < tensors_.size(); ++tensor) {
    Part part = model_[tensor];
    part.of_model = true;
    masters.emplace(tensor, std::move(part));
  }
}

const StateParts::Part& StateParts::optimizer(size_t kind, uint32_t tensor) const {
  const auto at = optimizer_.at(kind).find(tensor);
  if (at != optimizer_[kind].end()) return at->second;
  fail(ErrorKind::mismatch,
       "the optimizer has no {} of {}, as it has of other parameters; to write the model without "
       "the optimizer's state: {}",
       kinds_[kind], tensors_.at(tensor).name, option("optimizer", "none"));
}

void StateParts::append(const Part& part, const Shard& shard, bool again, FlatRecipe& flat) {
  const size_t first = flat.append(part.cutter, shard);
  if (!again && !part.of_model) return;
  const Recipe& recipe = flat.recipe();
  for (size_t i = first; i < recipe.moves.size(); ++i) {
    again_[recipe.inputs[recipe.moves[i].input]] += recipe.moves[i].elements();
  }
}

std::vector<Dropped> StateParts::repeated() const {
  std::vector<Dropped> dropped;
  for (const auto& [entry, elements] : again_) dropped.push_back({entry, -elements});
  return dropped;
}

}  // namespace ferry
