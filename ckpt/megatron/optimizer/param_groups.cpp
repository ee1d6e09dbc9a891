#include "ckpt/megatron/optimizer/param_groups.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/format/torch/objects.h"

namespace ferry {
namespace {

// The list of groups, without their parameters, each with the step that all parameters share.
LoadedValue normalised(const LoadedValue& groups, const Value& common_step) {
  const Value& list = groups.value;
  bool as_it_is = true;
  for (size_t i = 0; i < list.size(); ++i) {
    as_it_is &= !list[i].has("params") && (common_step.is_none() || list[i].has("step"));
  }
  if (as_it_is) return groups;
  Draft draft;
  const Value copy = draft.list();
  for (size_t i = 0; i < list.size(); ++i) {
    const Value group = draft.dict();
    for (size_t j = 0; j < list[i].pair_count(); ++j) {
      const Value key = list[i].pair_key(j);
      if (key.string() != "params") draft.put(group, key, list[i].pair_value(j));
    }
    if (common_step && !list[i].has("step")) draft.put(group, "step", common_step);
    draft.append(copy, group);
  }
  return std::move(draft).finish(copy);
}

// What is kept of one optimizer's value.
struct Kept {
  Value groups, common_step, scaler;
};

Kept kept_of(const Value& state) {
  const Value inner = state.has("param_groups") ? state : state.get("optimizer");
  return {inner.get("param_groups"), inner.get("state").get("common_step"),
          state.get("grad_scaler")};
}

void add_optimizer(const LoadedValue& state, OptimizerGroups& result) {
  const Kept kept = kept_of(state.value);
  if (kept.groups.kind() != ValueKind::list) return;
  result.param_groups.push_back(normalised({state.document, kept.groups}, kept.common_step));
  if (kept.scaler && !result.grad_scaler.value) result.grad_scaler = {state.document, kept.scaler};
}

// One optimizer, or several chained: a list, or a dict by number.
std::vector<Value> optimizers_of(const Value& value) {
  std::vector<Value> optimizers;
  if (value.kind() == ValueKind::list || value.kind() == ValueKind::tuple) {
    for (size_t i = 0; i < value.size(); ++i) optimizers.push_back(value[i]);
    return optimizers;
  }
  std::map<int64_t, Value> chained;
  for (size_t i = 0; i < value.pair_count(); ++i) {
    if (value.pair_key(i).kind() != ValueKind::integer) continue;
    chained.emplace(*value.pair_key(i).integer(), value.pair_value(i));
  }
  for (const auto& [number, optimizer] : chained) optimizers.push_back(optimizer);
  if (chained.empty()) optimizers.push_back(value);
  return optimizers;
}

// Returns whether some of the optimizers there have no groups: theirs are in objects.
bool add_from_object(const Catalog& catalog, const Object& object, OptimizerGroups& result) {
  LoadedValue state = read_object(catalog, object);
  std::vector<Value> parts;
  for (const Value& optimizer : optimizers_of(state.value)) {
    const Kept kept = kept_of(optimizer);
    parts.insert(parts.end(), {kept.groups, kept.common_step, kept.scaler});
  }
  state = with_storages(catalog, object, state, parts);
  const std::vector<Value> optimizers = optimizers_of(state.value);
  for (const Value& optimizer : optimizers) add_optimizer({state.document, optimizer}, result);
  return result.param_groups.size() < optimizers.size();
}

// "[chained_1.]optimizer.distributed.dp_group_idx_4.optimizer/shard_0_1": optimizer 1, group 4.
struct GroupObject {
  int64_t chained = 0, group = 0;
  std::string_view member;
};

std::optional<int64_t> take_number(std::string_view* text, std::string_view before, char after) {
  if (!text->starts_with(before)) return std::nullopt;
  text->remove_prefix(before.size());
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  const size_t used = end - text->data();
  if (error != std::errc() || number < 0 || used >= text->size() || *end != after) {
    return std::nullopt;
  }
  text->remove_prefix(used + 1);
  return number;
}

std::optional<GroupObject> parse_group_object(std::string_view name) {
  GroupObject object;
  if (const auto chained = take_number(&name, "chained_", '.')) object.chained = *chained;
  const auto group = take_number(&name, "optimizer.distributed.dp_group_idx_", '.');
  const size_t slash = name.find("/shard_");
  if (!group || slash == std::string_view::npos) return std::nullopt;
  object.group = *group;
  object.member = name.substr(0, slash);
  return object;
}

// Every group of ranks stores the same; the first one's is read.
void add_from_objects(const Catalog& catalog, OptimizerGroups& result) {
  struct Found {
    int64_t group = 0;
    const Object* object = nullptr;
  };
  std::map<int64_t, Found> optimizers;
  const Object* scaler = nullptr;
  for (const Object& object : catalog.objects) {
    const auto name = parse_group_object(object.name);
    if (!name) continue;
    if (name->member == "grad_scaler" && !scaler) scaler = &object;
    if (name->member != "optimizer") continue;
    Found& found = optimizers[name->chained];
    if (!found.object || name->group < found.group) found = {name->group, &object};
  }
  const auto only_element = [](LoadedValue value) {
    if (value.value.kind() == ValueKind::list) value.value = value.value[0];
    return value;
  };
  for (const auto& [chained, found] : optimizers) {
    add_optimizer(only_element(read_object_with_storages(catalog, *found.object)), result);
  }
  if (scaler) result.grad_scaler = only_element(read_object_with_storages(catalog, *scaler));
}

bool decays(const Value& group) {
  Value factor = group.get("wd_mult");
  if (!factor) factor = group.get("pre_wd_mult");
  return factor.real().value_or(1) != 0;
}

bool is_of_experts(const Value& group) {
  return group.get("is_expert_parallel").boolean().value_or(false);
}

bool has_groups_of_experts(const Value& groups) {
  for (size_t i = 0; i < groups.size(); ++i) {
    if (is_of_experts(groups[i])) return true;
  }
  return false;
}

// With groups of experts next to the others, or without them.
LoadedValue with_experts(const LoadedValue& groups, bool experts) {
  Draft draft;
  const Value all = draft.list();
  for (size_t i = 0; i < groups.value.size(); ++i) {
    if (!is_of_experts(groups.value[i])) draft.append(all, groups.value[i]);
  }
  for (size_t i = 0; experts && i < groups.value.size(); ++i) {
    const Value group = draft.dict();
    for (size_t j = 0; j < groups.value[i].pair_count(); ++j) {
      draft.put(group, groups.value[i].pair_key(j), groups.value[i].pair_value(j));
    }
    draft.put(group, "is_expert_parallel", draft.boolean(true));
    draft.append(all, group);
  }
  return std::move(draft).finish(all);
}

LoadedValue groups_of_experts(const LoadedValue& dense, bool biases) {
  Draft draft;
  const Value groups = draft.list();
  for (size_t i = 0; i < dense.value.size(); ++i) {
    if (!decays(dense.value[i]) && !biases) continue;
    const Value group = draft.dict();
    for (size_t j = 0; j < dense.value[i].pair_count(); ++j) {
      draft.put(group, dense.value[i].pair_key(j), dense.value[i].pair_value(j));
    }
    draft.put(group, "is_expert_parallel", draft.boolean(true));
    draft.append(groups, group);
  }
  return std::move(draft).finish(groups);
}

}  // namespace

OptimizerGroups read_param_groups(const Catalog& catalog, const Object* optimizer) {
  OptimizerGroups result;
  const bool in_objects = !optimizer || add_from_object(catalog, *optimizer, result);
  if (in_objects || result.param_groups.empty()) add_from_objects(catalog, result);
  return result;
}

std::vector<LoadedValue> adapt_groups_of_matrices(const std::vector<LoadedValue>& groups,
                                                  bool separate_experts, bool layer_wise) {
  std::vector<LoadedValue> adapted = groups;
  if (groups.empty()) return adapted;
  if (layer_wise) {
    if (has_groups_of_experts(groups.front().value) != separate_experts) {
      adapted.front() = with_experts(groups.front(), separate_experts);
    }
    return adapted;
  }
  const auto of_experts = [](const LoadedValue& one) { return has_groups_of_experts(one.value); };
  const bool have = std::any_of(adapted.begin(), adapted.end(), of_experts);
  if (have && !separate_experts) std::erase_if(adapted, of_experts);
  if (!have && separate_experts) {
    adapted.insert(adapted.begin() + 1, groups_of_experts(adapted.front(), false));
  }
  return adapted;
}

std::vector<LoadedValue> adapt_param_groups(const std::vector<LoadedValue>& groups,
                                            bool separate_experts, bool expert_biases) {
  if (groups.empty()) return {};
  if (!separate_experts) return {groups.front()};
  if (groups.size() > 1) return groups;
  return {groups.front(), groups_of_experts(groups.front(), expert_biases)};
}

}  // namespace ferry
