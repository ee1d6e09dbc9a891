#include "ckpt/megatron/rank_folders/write/plain_optimizer.h"

#include <algorithm>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/megatron/optimizer/optimizer_entries.h"
#include "ckpt/megatron/rank_folders/model.h"
#include "ckpt/megatron/rank_folders/write/state_names.h"

namespace ferry {
namespace {

bool has_fp32_copy(DType dtype) { return dtype == DType::bf16 || dtype == DType::f16; }

// One state of a parameter. `again`: the same is written elsewhere, too.
Value tensor_value(TorchFilePlan& file, LegacyTarget& target, const LocalParameter& parameter,
                   size_t kind, const std::string& name, bool again) {
  FlatRecipe flat;
  DType dtype = DType::f32;
  for (const Shard& shard : parameter.shards) {
    const StateParts::Part& part = target.parts.optimizer(kind, shard.tensor);
    target.parts.append(part, shard, again, flat);
    if (!part.of_model) dtype = part.tensor->dtype;
  }
  const Dims elements{flat.elements()};
  StateTensor state{optimizer_entry_name(target.parts.kinds()[kind], name), dtype, elements,
                    std::move(flat).take(), Role::optimizer};
  return file.tensor(std::move(state), local_shape(parameter));
}

}  // namespace

void put_grad_scaler(Draft& draft, const Value& optimizer, const LegacyTarget& target) {
  const Value& scaler = target.state->grad_scaler.value;
  if (scaler) draft.put(optimizer, "grad_scaler", scaler);
}

PlainOptimizerValue::PlainOptimizerValue(LegacyTarget& target, const LegacyRankTarget& rank,
                                         const Value& groups, Which which)
    : target_(target), rank_(rank), groups_(groups), which_(std::move(which)) {
  sort_into_groups();
}

void PlainOptimizerValue::sort_by_size() {
  for (auto& members : members_) {
    std::ranges::stable_sort(members, {}, [](const LocalParameter* one) { return one->elements; });
  }
}

void PlainOptimizerValue::append_to(std::vector<SpreadParameter>& parameters) const {
  for (size_t g = 0; g < members_.size(); ++g) {
    for (const LocalParameter* parameter : members_[g]) {
      parameters.push_back({parameter->elements, kinds_[g].routed});
    }
  }
}

Value PlainOptimizerValue::make(TorchFilePlan& file, const Owned& owned,
                                const std::function<bool(const LocalParameter&)>& again) {
  Draft& draft = file.draft();
  const std::vector<std::string>& kinds = target_.parts.kinds();
  const size_t master = std::ranges::find(kinds, "param") - kinds.begin();
  const Value states = draft.dict(), lists = draft.list(), masters = draft.list();
  int64_t next_number = 0;
  size_t asked = 0;
  for (size_t g = 0; g < members_.size(); ++g) {
    const Value numbers = draft.list(), copies = draft.list();
    for (const LocalParameter* parameter : members_[g]) {
      if (owned && !owned(asked++, *parameter)) continue;
      const std::string name = global_parameter_name(target_.layout, *parameter);
      const bool repeated = again ? again(*parameter) : !rank_.gives(*parameter);
      const Value number = draft.integer(next_number++), state = draft.dict();
      for (size_t kind = 0; kind < kinds.size(); ++kind) {
        // One of several optimizers may keep what another does not.
        const bool kept =
            !which_.matrices || target_.parts.has(kind, parameter->shards.front().tensor);
        if (kind == master || !kept) continue;
        draft.put(state, kinds[kind],
                  tensor_value(file, target_, *parameter, kind, name, repeated));
      }
      draft.append(numbers, number);
      draft.add(states, number, state);
      if (!has_fp32_copy(parameter->dtype)) continue;
      draft.append(copies, tensor_value(file, target_, *parameter, master, name, repeated));
    }
    // A dict of its own: optimizers of a chain may have their groups of one source.
    const Value group = draft.dict();
    for (size_t i = 0; i < groups_[g].pair_count(); ++i) {
      draft.put(group, groups_[g].pair_key(i), groups_[g].pair_value(i));
    }
    draft.put(group, "params", numbers);
    draft.append(lists, group);
    draft.append(masters, copies);
  }
  const Value inner = draft.dict();
  draft.put(inner, "state", states);
  draft.put(inner, "param_groups", lists);
  return wrap(draft, inner, masters);
}

// Mixed precision has an optimizer around PyTorch's; in fp32 there is that one alone.
Value PlainOptimizerValue::wrap(Draft& draft, const Value& inner, const Value& masters) const {
  const auto& tensors = target_.layout.tensors();
  const bool mixed = std::ranges::any_of(
      tensors, [](const ModelTensor& tensor) { return has_fp32_copy(tensor.dtype); });
  if (!mixed) return inner;
  const Value outer = draft.dict();
  draft.put(outer, "optimizer", inner);
  put_grad_scaler(draft, outer, target_);
  draft.put(outer, "fp32_from_fp16_params", masters);
  return outer;
}

bool PlainOptimizerValue::holds(const LocalParameter& parameter, const std::string& name) const {
  if (!parameter.trainable) return false;
  const bool expert = target_.choice.separate_experts && parameter.routed_expert;
  if (which_.matrices &&
      is_matrix_parameter(name, static_cast<size_t>(parameter.axes)) != *which_.matrices) {
    return false;
  }
  return target_.run.matrices.layer_wise || expert == which_.optimizer.experts;
}

// The kind of parameters that a group is of.
ParameterKind PlainOptimizerValue::kind_of(const Value& group) const {
  ParameterKind kind = kind_of_group(group, target_.run, which_.matrices.value_or(false));
  if (!target_.run.matrices.layer_wise) kind.routed = which_.optimizer.experts;
  return kind;
}

// In order of registration, group by group.
void PlainOptimizerValue::sort_into_groups() {
  bool decoupled = false, routed = false;
  for (size_t g = 0; g < groups_.size(); ++g) {
    kinds_.push_back(kind_of(groups_[g]));
    decoupled |= kinds_.back().decoupled;
    routed |= kinds_.back().routed;
  }
  members_.resize(kinds_.size());
  for (int64_t v = which_.optimizer.first_chunk; v < which_.optimizer.end_chunk; ++v) {
    for (const LocalParameter& parameter : rank_.chunks[static_cast<size_t>(v)]) {
      const std::string name = global_parameter_name(target_.layout, parameter);
      if (!holds(parameter, name)) continue;
      const bool in_experts =
          target_.run.matrices.layer_wise ? routed && parameter.routed_expert : routed;
      ParameterKind kind = parameter_kind(name, static_cast<size_t>(parameter.axes),
                                          target_.run.decays_qk_norms, in_experts, decoupled);
      kind.matrix = which_.matrices.value_or(false);
      const auto at = std::ranges::find(kinds_, kind);
      if (at == kinds_.end()) {
        fail(ErrorKind::unsupported,
             "none of the optimizer's parameter groups is for {} ({}weight decay); {} "
             "leaves the optimizer's state out",
             name, kind.decayed ? "" : "no ", option("optimizer", "none"));
      }
      members_[at - kinds_.begin()].push_back(&parameter);
    }
  }
}

std::vector<PlainOptimizerValue> optimizers_of_rank(LegacyTarget& target,
                                                    const LegacyRankTarget& rank) {
  std::vector<PlainOptimizerValue> all;
  const auto& lists = target.state->param_groups;
  for (size_t i = 0; i < lists.size(); ++i) {
    const Value& groups = lists[i].value;
    const bool experts = groups[0].get("is_expert_parallel").boolean().value_or(false);
    const RankOptimizer optimizer{0, target.layout.pipeline().chunks(),
                                  experts && !target.run.matrices.layer_wise};
    all.emplace_back(target, rank, groups,
                     PlainOptimizerValue::Which{optimizer, i == 0 || has_momentum(groups[0])});
  }
  return all;
}

}  // namespace ferry
