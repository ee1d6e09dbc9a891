#include "ckpt/megatron/rank_folders/write/optimizer_writer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/megatron/optimizer/buckets/buffer_state.h"
#include "ckpt/megatron/rank_folders/layer_wise.h"
#include "ckpt/megatron/rank_folders/rank.h"
#include "ckpt/megatron/rank_folders/write/plain_optimizer.h"

namespace ferry {
namespace {

// The parameter groups of one member of the chain of optimizers.
const Value& groups_of(const LegacyTarget& target, const RankOptimizer& optimizer) {
  const std::vector<LoadedValue>& groups = target.state->param_groups;
  const size_t number = optimizer.experts ? 1 : 0;
  if (number < groups.size()) return groups[number].value;
  fail(ErrorKind::mismatch,
       "the state holds the parameter groups of {} optimizers, the target's layout has {} (without "
       "them no optimizer can be loaded; {} leaves its state out)",
       groups.size(), number + 1, option("optimizer", "none"));
}

std::vector<RankOptimizer> chain_of(const LegacyTarget& target) {
  return rank_optimizers(target.run, target.layout.pipeline().chunks(),
                         target.choice.separate_experts);
}

// One optimizer's value, or the list of those of a chain.
Value chained(Draft& draft, const std::vector<Value>& optimizers) {
  return optimizers.size() == 1 ? optimizers.front() : draft.list(optimizers);
}

// Which rank of a group holds what of a buffer, whose buckets follow one another without their
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
  if (target.run.matrices.any) {
    std::vector<PlainOptimizerValue> all = optimizers_of_rank(target, rank);
    for (PlainOptimizerValue& one : all) optimizers.push_back(one.make(file));
    return chained(file.draft(), optimizers);
  }
  for (const RankOptimizer& optimizer : chain_of(target)) {
    PlainOptimizerValue value(target, rank, groups_of(target, optimizer), {optimizer, {}});
    optimizers.push_back(value.make(file));
  }
  return chained(file.draft(), optimizers);
}

namespace {

Value value_of_rank(TorchFilePlan& out, LegacyTarget& target, const LegacyRankTarget& rank,
                    const LayerWiseFile& file, bool copy) {
  std::vector<PlainOptimizerValue> optimizers = optimizers_of_rank(target, rank);
  const bool spread = file.data_ranks > 1;
  std::vector<SpreadParameter> parameters;
  std::vector<size_t> starts;
  for (PlainOptimizerValue& one : optimizers) {
    if (spread) one.sort_by_size();
    starts.push_back(parameters.size());
    one.append_to(parameters);
  }
  std::vector<int64_t> owners;
  if (spread) owners = owners_to_and_fro(parameters, file.data_ranks, file.expert_data_ranks);
  const auto again = [&](const LocalParameter& parameter) {
    return copy || (spread ? !parameter.first_copy : !rank.gives(parameter));
  };
  std::vector<Value> values;
  for (size_t i = 0; i < optimizers.size(); ++i) {
    const auto owned = [&](size_t number, const LocalParameter&) {
      const size_t at = starts[i] + number;
      return !spread || owners[at] == (parameters[at].experts ? file.expert_data : file.data);
    };
    values.push_back(optimizers[i].make(out, owned, again));
  }
  return values.size() == 1 ? values.front() : out.draft().list(values);
}

}  // namespace

Value layer_wise_optimizer_value(TorchFilePlan& file, LegacyTarget& target,
                                 const LegacyRankTarget& rank) {
  for (const LayerWiseFile& one : layer_wise_files(target.run, expected_rank_folders(target.run))) {
    if (one.rank == rank.folder.first_rank) return value_of_rank(file, target, rank, one, true);
  }
  return file.draft().none();
}

void add_layer_wise_files(Plan& plan, LegacyTarget& target,
                          const std::vector<LegacyRankTarget>& ranks) {
  std::vector<RankFolder> folders;
  for (const LegacyRankTarget& rank : ranks) folders.push_back(rank.folder);
  for (const LayerWiseFile& file : layer_wise_files(target.run, folders)) {
    TorchFilePlan out(file.rank);
    const Value root = value_of_rank(out, target, ranks[file.folder], file, false);
    std::move(out).add_to(plan, join(folders[file.folder].name, file.name), root);
  }
}

}  // namespace ferry
