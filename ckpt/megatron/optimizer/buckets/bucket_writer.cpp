#include "ckpt/megatron/optimizer/buckets/bucket_writer.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/format/torch/archive/torch_archive_writer.h"
#include "ckpt/megatron/optimizer/buckets/bucket_store.h"
#include "ckpt/megatron/optimizer/buckets/buffer_state.h"
#include "ckpt/megatron/optimizer/buckets/model_buffers.h"
#include "ckpt/megatron/optimizer/matrix_optimizer.h"
#include "ckpt/megatron/state/state_parts.h"

namespace ferry {
namespace {

// Megatron-LM stores what a group of ranks gives for one key as a list.
std::string archive_of_group(const LoadedValue& value) {
  Draft draft;
  const Value list = draft.list({draft.copy(value.value)});
  return write_torch_archive(std::move(draft).finish(list).value);
}

// Sizes of the buckets of the buffers of one group of ranks.
class BucketSizes {
 public:
  void add(DType parameters, DType gradients, const std::vector<FlatBucket>& buckets) {
    buffers_.push_back({parameters, gradients, buckets});
  }

  // [[{(torch.bfloat16, torch.float32): [31872, ...]}, ... one dict a buffer]]
  std::string archive(int64_t FlatBucket::*size) const {
    Draft draft;
    const Value buffers = draft.list();
    for (const Buffer& buffer : buffers_) {
      const Value sizes = draft.list();
      for (const FlatBucket& bucket : buffer.buckets) {
        draft.append(sizes, draft.integer(bucket.*size));
      }
      const Value by_dtype = draft.dict();
      draft.put(by_dtype,
                draft.tuple({draft.dtype(buffer.parameters), draft.dtype(buffer.gradients)}),
                sizes);
      draft.append(buffers, by_dtype);
    }
    return archive_of_group(std::move(draft).finish(buffers));
  }

 private:
  struct Buffer {
    DType parameters, gradients;
    std::vector<FlatBucket> buckets;
  };
  std::vector<Buffer> buffers_;
};

class BucketPlacer {
 public:
  BucketPlacer(const RunState& state, const RunArguments& run)
      : parts_(state), layout_(parts_.tensors(), run), run_(run), state_(state) {
    choice_.modules = state.modules.value_or(default_modules(run));
    choice_.separate_experts = layout_.has_experts() && experts_are_separate(run);
    if (!run.matrices.layer_wise) return;
    // One chained optimizer for all that is not a matrix.
    choice_.before = 1;
    choice_.elsewhere = matrix_tensors(layout_, choice_.modules);
    choice_.separate_experts = false;
  }

  // For all ranks, or for one.
  PlacedBuckets place(std::optional<int64_t> only_rank) && {
    if (parts_.kinds().empty()) return {};
    only_rank_ = only_rank;
    const std::vector<RankOptimizer> chain =
        rank_optimizers(run_, layout_.pipeline().chunks(), choice_.separate_experts);
    const std::vector<std::string> groups_of_parameters = archives_of_parameter_groups(chain);
    for (int64_t stage = 0; stage < run_.pipeline; ++stage) {
      for (const OptimizerGroup& group : optimizer_groups(run_, chain, choice_.before)) {
        if (concerns(group, stage)) {
          place_group(group, stage, groups_of_parameters[group.position]);
        }
      }
    }
    placed_.repeated = parts_.repeated();
    return std::move(placed_);
  }

 private:
  bool concerns(const OptimizerGroup& group, int64_t stage) const {
    if (!only_rank_) return true;
    const RankGroups::Place place = group.ranks.place_of(*only_rank_);
    return place.stage == stage && place.number == group.number;
  }
  bool concerns(int64_t rank) const { return !only_rank_ || *only_rank_ == rank; }

  // One a member of the chain: dense optimizers share theirs.
  std::vector<std::string> archives_of_parameter_groups(
      const std::vector<RankOptimizer>& chain) const {
    const std::vector<LoadedValue>& groups = state_.param_groups;
    const auto before = static_cast<size_t>(choice_.before);
    const size_t expected = before + (choice_.separate_experts ? 2 : 1);
    if (groups.size() != expected) {
      fail(ErrorKind::mismatch,
           "the state holds the parameter groups of {} optimizers, the target's layout has {} "
           "(without them no optimizer can be loaded; {} leaves its state out)",
           groups.size(), expected, option("optimizer", "none"));
    }
    std::vector<std::string> archives;
    for (const RankOptimizer& optimizer : chain) {
      Draft draft;
      const Value state = draft.dict();
      draft.put(state, "param_groups", groups[before + (optimizer.experts ? 1 : 0)].value);
      archives.push_back(archive_of_group(std::move(draft).finish(state)));
    }
    return archives;
  }

  void place_group(const OptimizerGroup& group, int64_t stage,
                   const std::string& parameter_groups) {
    const RankGroups& groups = group.ranks;
    const auto rank_of = [&](int64_t data) {
      return groups.global_rank(stage, group.number, data);
    };
    BucketSizes sizes;
    const RankCoordinates rank = groups.rank(stage, group.number);
    BufferKey key{group.chained, groups.index(stage, group.number), 0};
    for (const ModelBuffer& buffer : optimizer_buffers(layout_, choice_, rank, group.optimizer)) {
      const DType gradients = run_.fp32_gradients ? DType::f32 : buffer.dtype;
      sizes.add(buffer.dtype, gradients, buffer.flat.buckets);
      place_buffer(buffer, key, gradients, std::max<int64_t>(groups.data_ranks(), 1), rank_of);
      ++key.buffer;
    }
    if (!concerns(rank_of(0))) return;
    const auto object = [&](std::string_view member, std::string archive) {
      placed_.objects.push_back({group_object_name(key, member), std::move(archive), rank_of(0)});
    };
    object("optimizer", parameter_groups);
    if (state_.grad_scaler.value) object("grad_scaler", archive_of_group(state_.grad_scaler));
    object("per_bucket_numel", sizes.archive(&FlatBucket::elements));
    object("per_bucket_numel_unpadded", sizes.archive(&FlatBucket::unpadded));
  }

  // Matrices may have state that other parameters have not.
  bool keeps(const ModelBuffer& buffer, size_t kind) const {
    if (choice_.elsewhere.empty()) return true;
    return std::ranges::any_of(buffer.parameters, [&](const LocalParameter& parameter) {
      return parts_.has(kind, parameter.shards.front().tensor);
    });
  }

  template <typename RankOf>
  void place_buffer(const ModelBuffer& buffer, const BufferKey& key, DType gradients,
                    int64_t data_ranks, RankOf rank_of) {
    BufferState state(buffer, parts_);
    std::vector<std::vector<int64_t>> bounds = parameter_bounds(buffer.flat);
    for (size_t i = 0; i < buffer.flat.buckets.size(); ++i) {
      const FlatBucket& bucket = buffer.flat.buckets[i];
      bounds[i].insert(bounds[i].end(), {0, bucket.unpadded});
      add_rank_bounds(bucket, data_ranks, bounds[i]);
      std::vector<Shard> shards;
      for (size_t j = 1; j < bounds[i].size(); ++j) {
        const int64_t begin = bounds[i][j - 1];
        const int64_t writer = rank_of(begin / (bucket.elements / data_ranks));
        if (concerns(writer)) shards.push_back({Box{{begin}, {bounds[i][j] - begin}}, writer});
      }
      if (only_rank_ && shards.empty()) continue;
      for (size_t kind = 0; kind < parts_.kinds().size(); ++kind) {
        if (!keeps(buffer, kind)) continue;
        std::string name = bucket_name(key, buffer.dtype, gradients, static_cast<int64_t>(i),
                                       parts_.kinds()[kind]);
        placed_.tensors.push_back({state.gather(kind, i, i + 1, std::move(name)), shards});
      }
    }
  }

  StateParts parts_;
  ModelLayout layout_;
  const RunArguments& run_;
  const RunState& state_;
  BufferChoice choice_;
  std::optional<int64_t> only_rank_;  // nothing: all
  PlacedBuckets placed_;
};

PlacedBuckets place(const RunState& state, const RunArguments& target,
                    std::optional<int64_t> only_rank) {
  if (!target.other_modules.empty()) {
    fail(ErrorKind::unsupported,
         "the target is trained with {}: the order of its modules' parameters is unknown, so that "
         "their optimizer state cannot be written flat; {} writes it per parameter",
         target.other_modules, option("optimizer", "fully_reshardable"));
  }
  return BucketPlacer(state, target).place(only_rank);
}

}  // namespace

PlacedBuckets place_buckets(const RunState& state, const RunArguments& target) {
  return place(state, target, std::nullopt);
}

PlacedBuckets place_buckets_of_rank(const RunState& state, const RunArguments& target,
                                    int64_t rank) {
  return place(state, target, rank);
}

}  // namespace ferry
