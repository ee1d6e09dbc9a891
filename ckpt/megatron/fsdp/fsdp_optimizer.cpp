#include "ckpt/megatron/fsdp/fsdp_optimizer.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/megatron/fsdp/fsdp_names.h"
#include "ckpt/megatron/model/parameter_names.h"
#include "ckpt/megatron/optimizer/optimizer_entries.h"
#include "ckpt/megatron/rank_folders/parameter_kind.h"

namespace ferry {
namespace {

using KeyKind = FsdpOptimizerKey::Kind;
using FsdpMembers = std::vector<const ModelTensor*>;

bool is_in_16_bits(DType dtype) { return dtype == DType::bf16 || dtype == DType::f16; }

class FsdpStateCollector {
 public:
  FsdpStateCollector(const std::vector<Entry>& stored, const FsdpModel& model)
      : stored_(stored), model_(model), entries_(model.tensors()) {}

  void add(const Entry& entry, std::string_view parameter, std::string_view state) {
    const FsdpPlace* place = model_.find(parameter);
    if (!place) {
      fail(ErrorKind::mismatch, "{} belongs to no parameter of the model", entry.name);
    }
    if (entry.shape != place->shape) {
      fail(ErrorKind::mismatch, "{} is of shape {}, its parameter of {}", entry.name,
           to_string(entry.shape), to_string(place->shape));
    }
    for (const Chunk& chunk : entry.chunks) {
      entries_.add(state, entry.dtype, place->tensor, FsdpModel::placed(chunk, *place));
    }
  }

  void add_by_name() {
    for (const Entry& entry : stored_) {
      const auto key = parse_fsdp_optimizer_key(entry.name);
      if (!key || is_step_of_parameter(entry)) continue;
      if (key->kind != KeyKind::state_by_name) {
        fail(ErrorKind::mismatch, "{} is the state of no parameter by name", entry.name);
      }
      add(entry, key->parameter, key->state);
    }
  }

  // `names[g]` are those of group g's members, in order.
  void add_by_number(const std::vector<std::vector<int64_t>>& numbers,
                     const std::vector<FsdpMembers>& names) {
    std::map<int64_t, const ModelTensor*> by_number;
    for (size_t group = 0; group < numbers.size(); ++group) {
      for (size_t i = 0; i < numbers[group].size(); ++i) {
        by_number.emplace(numbers[group][i], names[group][i]);
      }
    }
    for (const Entry& entry : stored_) {
      const auto key = parse_fsdp_optimizer_key(entry.name);
      if (!key || is_step_of_parameter(entry)) continue;
      if (key->kind == KeyKind::state_by_number) {
        const auto found = by_number.find(key->number);
        if (found == by_number.end()) {
          fail(ErrorKind::mismatch, "{}: no parameter group has a member {}", entry.name,
               key->number);
        }
        add(entry, found->second->name, key->state);
      } else if (key->kind == KeyKind::master) {
        add(entry, master_of(entry, *key, names), "param");
      } else {
        fail(ErrorKind::mismatch, "{} is the state of no parameter by number", entry.name);
      }
    }
  }

  std::vector<Entry> take() { return entries_.take(); }

 private:
  // Only those members that the model holds in 16 bits have a copy.
  static std::string_view master_of(const Entry& entry, const FsdpOptimizerKey& key,
                                    const std::vector<FsdpMembers>& names) {
    int64_t number = 0;
    if (key.group >= 0 && key.group < static_cast<int64_t>(names.size())) {
      for (const ModelTensor* member : names[static_cast<size_t>(key.group)]) {
        if (is_in_16_bits(member->dtype) && number++ == key.number) return member->name;
      }
    }
    fail(ErrorKind::mismatch, "{}: its group has no such member in 16 bits", entry.name);
  }

  const std::vector<Entry>& stored_;
  const FsdpModel& model_;
  OptimizerEntries entries_;
};

// The shape of what is stored under each number.
std::map<int64_t, Dims> shapes_by_number(const std::vector<Entry>& stored) {
  std::map<int64_t, Dims> shapes;
  for (const Entry& entry : stored) {
    const auto key = parse_fsdp_optimizer_key(entry.name);
    if (!key || is_step_of_parameter(entry) || key->kind != KeyKind::state_by_number) continue;
    shapes.emplace(key->number, entry.shape);
  }
  return shapes;
}

bool fits_fsdp_group(const std::vector<int64_t>& numbers, const FsdpMembers& members,
                     const std::map<int64_t, Dims>& shapes) {
  if (numbers.size() != members.size()) return false;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const auto shape = shapes.find(numbers[i]);
    if (shape != shapes.end() && shape->second != members[i]->shape) return false;
  }
  return true;
}

// The parameters of each group, where each kind of them is one group.
std::optional<std::vector<FsdpMembers>> match_fsdp_groups(
    const std::vector<std::vector<int64_t>>& groups,
    const std::map<ParameterKind, FsdpMembers>& kinds, const std::map<int64_t, Dims>& shapes) {
  std::vector<FsdpMembers> matched;
  std::set<const FsdpMembers*> used;
  for (const std::vector<int64_t>& group : groups) {
    const FsdpMembers* found = nullptr;
    for (const auto& [kind, members] : kinds) {
      if (group.empty() || used.contains(&members) || !fits_fsdp_group(group, members, shapes))
        continue;
      if (found) {
        fail(ErrorKind::unsupported,
             "two sets of parameters have the shapes of one parameter group of the optimizer");
      }
      found = &members;
    }
    if (!found && !group.empty()) return std::nullopt;
    if (found) used.insert(found);
    matched.push_back(found ? *found : FsdpMembers());
  }
  if (used.size() != kinds.size()) return std::nullopt;
  return matched;
}

std::vector<FsdpMembers> parameters_of_groups(const std::vector<Entry>& stored,
                                              const FsdpModel& model,
                                              const std::vector<ModelTensor>& parameters,
                                              const std::vector<std::vector<int64_t>>& groups) {
  const std::map<int64_t, Dims> shapes = shapes_by_number(stored);
  for (const bool separate : {false, true}) {
    for (const bool decoupled : {false, true}) {
      std::map<ParameterKind, FsdpMembers> kinds;
      for (const ModelTensor& parameter : parameters) {
        const FsdpPlace* place = model.find(parameter.name);
        if (!place || !place->trainable) continue;
        const std::string& name = model.tensors()[place->tensor].name;
        const bool routed = separate && name.find(kRoutedExperts) != std::string::npos;
        kinds[parameter_kind(name, parameter.shape.size(), model.decays_qk_norms(), routed,
                             decoupled)]
            .push_back(&parameter);
      }
      if (auto matched = match_fsdp_groups(groups, kinds, shapes)) return std::move(*matched);
    }
  }
  fail(ErrorKind::mismatch,
       "the optimizer's parameter groups do not hold the model's parameters in their order");
}

}  // namespace

bool is_step_of_parameter(const Entry& entry) {
  return entry.shape.empty() && entry.name.ends_with(".step");
}

std::vector<Entry> fsdp_optimizer_entries(const std::vector<Entry>& stored, const FsdpModel& model,
                                          const std::vector<ModelTensor>& parameters,
                                          const std::vector<std::vector<int64_t>>& members) {
  FsdpStateCollector collector(stored, model);
  if (members.empty()) {
    collector.add_by_name();
  } else {
    collector.add_by_number(members, parameters_of_groups(stored, model, parameters, members));
  }
  return collector.take();
}

}  // namespace ferry
