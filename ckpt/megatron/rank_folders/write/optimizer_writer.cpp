#include "ckpt/megatron/rank_folders/write/optimizer_writer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/megatron/optimizer/buckets/buffer_state.h"
#include "ckpt/megatron/optimizer/optimizer_entries.h"
#include "ckpt/megatron/rank_folders/model.h"
#include "ckpt/megatron/rank_folders/parameter_kind.h"
#include "ckpt/megatron/rank_folders/rank.h"
#include "ckpt/megatron/rank_folders/write/state_names.h"

namespace ferry {
namespace {

// The parameter groups of one member of the chain of optimizers.
const Value& groups_of(const LegacyTarget& target, const RankOptimizer& optimizer) {
  const std::vector<LoadedValue>& groups = target.state->param_groups;
  const size_t number = optimizer.experts ? 1 : 0;
  if (number < groups.size()) return groups[number].value;
  fail(ErrorKind::mismatch,
       "the state holds the parameter groups of {} optimizers, the target's layout has {} (without "
       "them no optimizer can be loaded; --optimizer none leaves its state out)",
       groups.size(), number + 1);
}

std::vector<RankOptimizer> chain_of(const LegacyTarget& target) {
  return rank_optimizers(target.run, target.layout.pipeline().chunks(),
                         target.choice.separate_experts);
}

// One optimizer's value, or the list of those of a chain.
Value chained(Draft& draft, const std::vector<Value>& optimizers) {
  return optimizers.size() == 1 ? optimizers.front() : draft.list(optimizers);
}

void put_grad_scaler(Draft& draft, const Value& optimizer, const LegacyTarget& target) {
  const Value& scaler = target.state->grad_scaler.value;
  if (scaler) draft.put(optimizer, "grad_scaler", scaler);
}

// Which rank of a group holds what of a buffer, whose buckets lie one after another without their
// padded ends.
std::vector<Shard> parts_of_ranks(const FlatBuffer& buffer, const RankGroups& groups,
                                  int64_t first_rank) {
  if (groups.data_ranks() == 0) {
    fail(ErrorKind::unsupported,
         "the arguments (world_size) do not say how many ranks share the optimizer's state");
  }
  const RankGroups::Place place = groups.place_of(first_rank);
  std::vector<Shard> parts;
  int64_t start = 0;  // of the bucket
  for (const FlatBucket& bucket : buffer.buckets) {
    const int64_t part = bucket.elements / groups.data_ranks();
    for (int64_t data = 0; data < groups.data_ranks() && part * data < bucket.unpadded; ++data) {
      const int64_t begin = part * data, end = std::min(begin + part, bucket.unpadded);
      parts.push_back({Box{{start + begin}, {end - begin}},
                       groups.global_rank(place.stage, place.number, data)});
    }
    start += bucket.unpadded;
  }
  return parts;
}

// {(torch.bfloat16, torch.float32): {param, exp_avg, exp_avg_sq, numel_unpadded}} of one buffer.
Value buffer_value(TorchFilePlan& file, LegacyTarget& target, const ModelBuffer& buffer,
                   const std::vector<Shard>& parts, const std::string& name) {
  Draft& draft = file.draft();
  BufferState state(buffer, target.parts);
  const Value tensors = draft.dict();
  const std::vector<std::string>& kinds = target.parts.kinds();
  for (size_t kind = 0; kind < kinds.size(); ++kind) {
    StateTensor tensor = state.gather(kind, 0, state.buckets(), name + "." + kinds[kind]);
    const Dims shape = tensor.shape;
    draft.put(tensors, kinds[kind], file.tensor(std::move(tensor), shape, parts));
  }
  draft.put(tensors, "numel_unpadded", draft.integer(coalesced_bounds(buffer.flat).back()));
  const DType gradients = target.run.fp32_gradients ? DType::f32 : buffer.dtype;
  const Value by_dtype = draft.dict();
  draft.put(by_dtype, draft.tuple({draft.dtype(buffer.dtype), draft.dtype(gradients)}), tensors);
  return by_dtype;
}

// PyTorch's state of one optimizer: groups, and by number of the parameter their tensors.
class PlainOptimizerValue {
 public:
  PlainOptimizerValue(TorchFilePlan& file, LegacyTarget& target, const LegacyRankTarget& rank,
                      const RankOptimizer& optimizer)
      : file_(file), draft_(file.draft()), target_(target), rank_(rank), optimizer_(optimizer) {}

  Value make() {
    const Value& groups = groups_of(target_, optimizer_);
    sort_into_groups(groups);
    const Value states = draft_.dict(), lists = draft_.list(), masters = draft_.list();
    for (size_t g = 0; g < groups.size(); ++g) {
      const Value numbers = draft_.list(), copies = draft_.list();
      for (const LocalParameter* parameter : members_[g]) {
        const std::string name = global_parameter_name(target_.layout, *parameter);
        const int64_t number = next_number_++;
        draft_.append(numbers, draft_.integer(number));
        draft_.add(states, draft_.integer(number), state_of(*parameter, name));
        if (is_half(parameter->dtype)) draft_.append(copies, tensor(*parameter, "param", name));
      }
      // A dict of its own: optimizers of a chain may have their groups of one source.
      const Value group = draft_.dict();
      for (size_t i = 0; i < groups[g].pair_count(); ++i) {
        draft_.put(group, groups[g].pair_key(i), groups[g].pair_value(i));
      }
      draft_.put(group, "params", numbers);
      draft_.append(lists, group);
      draft_.append(masters, copies);
    }
    const Value inner = draft_.dict();
    draft_.put(inner, "state", states);
    draft_.put(inner, "param_groups", lists);
    return wrap(inner, masters);
  }

 private:
  static bool is_half(DType dtype) { return dtype == DType::bf16 || dtype == DType::f16; }

  // Mixed precision has an optimizer around PyTorch's; in fp32 there is that one alone.
  Value wrap(const Value& inner, const Value& masters) {
    const auto& tensors = target_.layout.tensors();
    const bool mixed = std::ranges::any_of(
        tensors, [](const ModelTensor& tensor) { return is_half(tensor.dtype); });
    if (!mixed) return inner;
    const Value outer = draft_.dict();
    draft_.put(outer, "optimizer", inner);
    put_grad_scaler(draft_, outer, target_);
    draft_.put(outer, "fp32_from_fp16_params", masters);
    return outer;
  }

  bool holds(const LocalParameter& parameter) const {
    const bool expert = target_.choice.separate_experts && parameter.routed_expert;
    return parameter.trainable && expert == optimizer_.experts;
  }

  // The kind of parameters that a group is of.
  ParameterKind kind_of(const Value& group) const {
    Value decay = group.get("wd_mult");
    if (!decay) decay = group.get("pre_wd_mult");
    const auto own_rate = target_.state->args.value.get("decoupled_lr").real();
    const bool decoupled = group.get("is_decoupled_lr").boolean().value_or(false) ||
                           (own_rate && group.get("max_lr").real() == own_rate);
    return {decay.real().value_or(1) != 0, optimizer_.experts, decoupled};
  }

  // In order of registration, group by group.
  void sort_into_groups(const Value& groups) {
    std::vector<ParameterKind> kinds;
    bool decoupled = false;
    for (size_t g = 0; g < groups.size(); ++g) {
      kinds.push_back(kind_of(groups[g]));
      decoupled |= kinds.back().decoupled;
    }
    members_.resize(kinds.size());
    for (int64_t v = optimizer_.first_chunk; v < optimizer_.end_chunk; ++v) {
      for (const LocalParameter& parameter : rank_.chunks[static_cast<size_t>(v)]) {
        if (!holds(parameter)) continue;
        const std::string name = global_parameter_name(target_.layout, parameter);
        const auto axes = static_cast<size_t>(parameter.axes);
        const ParameterKind kind = parameter_kind(name, axes, optimizer_.experts, decoupled);
        const auto at = std::ranges::find(kinds, kind);
        if (at == kinds.end()) {
          fail(ErrorKind::unsupported,
               "none of the optimizer's parameter groups is for {} ({}weight decay); --optimizer "
               "none leaves the optimizer's state out",
               name, kind.decayed ? "" : "no ");
        }
        members_[at - kinds.begin()].push_back(&parameter);
      }
    }
  }

  Value state_of(const LocalParameter& parameter, const std::string& name) {
    const Value states = draft_.dict();
    for (const std::string& kind : target_.parts.kinds()) {
      if (kind != "param") draft_.put(states, kind, tensor(parameter, kind, name));
    }
    return states;
  }

  Value tensor(const LocalParameter& parameter, const std::string& kind, const std::string& name) {
    const size_t number =
        std::ranges::find(target_.parts.kinds(), kind) - target_.parts.kinds().begin();
    FlatRecipe flat;
    DType dtype = DType::f32;
    for (const Shard& shard : parameter.shards) {
      const StateParts::Part& part = target_.parts.optimizer(number, shard.tensor);
      target_.parts.append(part, shard, !rank_.gives(parameter), flat);
      if (!part.of_model) dtype = part.tensor->dtype;
    }
    const Dims elements{flat.elements()};
    StateTensor state{optimizer_entry_name(kind, name), dtype, elements, std::move(flat).take(),
                      Role::optimizer};
    return file_.tensor(std::move(state), local_shape(parameter));
  }

  TorchFilePlan& file_;
  Draft& draft_;
  LegacyTarget& target_;
  const LegacyRankTarget& rank_;
  const RankOptimizer& optimizer_;
  std::vector<std::vector<const LocalParameter*>> members_;  // by group
  int64_t next_number_ = 0;
};

}  // namespace

Value flat_optimizer_value(TorchFilePlan& file, const LegacyTarget& target) {
  Draft& draft = file.draft();
  std::vector<Value> optimizers;
  for (const RankOptimizer& optimizer : chain_of(target)) {
    const Value inner = draft.dict(), outer = draft.dict();
    draft.put(inner, "param_groups", groups_of(target, optimizer));
    draft.put(outer, "optimizer", inner);
    put_grad_scaler(draft, outer, target);
    optimizers.push_back(outer);
  }
  return chained(draft, optimizers);
}

void add_flat_optimizer_file(Plan& plan, LegacyTarget& target, const LegacyRankTarget& rank,
                             bool by_ranks) {
  TorchFilePlan file(rank.folder.first_rank);
  Draft& draft = file.draft();
  std::vector<Value> optimizers;
  bool any = false;  // the first data rank of an optimizer has its state
  for (const RankOptimizer& optimizer : chain_of(target)) {
    const bool gives = optimizer.experts ? rank.folder.gives_experts : rank.folder.gives_dense;
    optimizers.push_back(gives ? draft.dict() : draft.none());
    if (!gives) continue;
    any = true;
    draft.put(optimizers.back(), "buckets_coalesced", draft.boolean(true));
    const RankGroups groups(target.run, optimizer.experts);
    int64_t number = 0;
    for (const ModelBuffer& buffer :
         optimizer_buffers(target.layout, target.choice, rank.folder.rank, optimizer)) {
      const std::string name = fmt::format("{}.{}", optimizers.size() - 1, number);
      std::vector<Shard> parts;
      if (by_ranks) parts = parts_of_ranks(buffer.flat, groups, rank.folder.first_rank);
      draft.put(optimizers.back(), draft.integer(number),
                buffer_value(file, target, buffer, parts, name));
      ++number;
    }
  }
  if (!any) return;
  const Value root = chained(draft, optimizers);
  std::move(file).add_to(plan, join(rank.folder.name, kLegacyOptimizerFile), root);
}

Value plain_optimizer_value(TorchFilePlan& file, LegacyTarget& target,
                            const LegacyRankTarget& rank) {
  std::vector<Value> optimizers;
  for (const RankOptimizer& optimizer : chain_of(target)) {
    optimizers.push_back(PlainOptimizerValue(file, target, rank, optimizer).make());
  }
  return chained(file.draft(), optimizers);
}

}  // namespace ferry
