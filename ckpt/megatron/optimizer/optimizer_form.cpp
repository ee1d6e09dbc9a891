#include "ckpt/megatron/optimizer/optimizer_form.h"

#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/megatron/optimizer/optimizer_entries.h"

namespace ferry {
namespace {

constexpr std::string_view kMaster = "optimizer.state.param.";

// Model tensors' names that have a state of this kind.
std::unordered_set<std::string> keys_with(const RunState& state, std::string_view prefix) {
  std::unordered_set<std::string> keys;
  for (const StateTensor& tensor : state.tensors) {
    if (tensor.name.starts_with(prefix)) keys.insert(tensor.name.substr(prefix.size()));
  }
  return keys;
}

std::vector<std::string> without_master(const RunState& state) {
  auto known = keys_with(state, kMaster);
  std::vector<std::string> missing;
  for (const StateTensor& tensor : state.tensors) {
    const auto name = parse_optimizer_entry_name(tensor.name);
    if (tensor.role != Role::optimizer || !name) continue;
    if (known.emplace(name->key).second) missing.emplace_back(name->key);
  }
  return missing;
}

// Inputs are read once more than the plan would expect, or once less.
void count_inputs(const StateTensor& tensor, int64_t sign, std::vector<Dropped>& dropped) {
  for (const Move& move : tensor.recipe.moves) {
    dropped.push_back({tensor.recipe.inputs.at(move.input), sign * move.elements()});
  }
}

}  // namespace

bool has_distributed_optimizer(const RunState& state) {
  return state.args.run.distributed_optimizer.value_or(true);
}

void set_distributed_optimizer(RunState& state, bool distributed) {
  Draft draft;
  const Value args = draft.copy(state.args.value);
  draft.put(args, "use_distributed_optimizer", draft.boolean(distributed));
  state.args = std::move(draft).finish(args);
}

void add_masters(RunState& state, const KeyPredicate& of) {
  std::unordered_map<std::string, size_t> model;
  for (size_t i = 0; i < state.tensors.size(); ++i) model.emplace(state.tensors[i].name, i);
  for (const std::string& key : without_master(state)) {
    if (of && !of(key)) continue;
    const auto found = model.find(key);
    if (found == model.end()) {
      fail(ErrorKind::mismatch, "optimizer state of {} belongs to no tensor of the model", key);
    }
    StateTensor master = state.tensors[found->second];
    master.name = optimizer_entry_name("param", key);
    master.dtype = DType::f32;
    master.role = Role::optimizer;
    count_inputs(master, -1, state.dropped);
    state.tensors.push_back(std::move(master));
  }
}

void drop_doubled_masters(RunState& state, const KeyPredicate& of) {
  std::unordered_set<std::string> doubled;
  for (const StateTensor& tensor : state.tensors) {
    if (tensor.role == Role::model && tensor.dtype == DType::f32 && (!of || of(tensor.name))) {
      doubled.insert(optimizer_entry_name("param", tensor.name));
    }
  }
  std::erase_if(state.tensors, [&](const StateTensor& tensor) {
    if (!doubled.contains(tensor.name)) return false;
    count_inputs(tensor, 1, state.dropped);
    return true;
  });
}

}  // namespace ferry
