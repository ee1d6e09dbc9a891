#include "ckpt/megatron/optimizer/buckets/model_buffers.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "ckpt/base/checked.h"

namespace ferry {
namespace {

int64_t trainable_elements(const ModelLayout& layout, const ModuleChoice& modules,
                           RankCoordinates rank) {
  int64_t elements = 0;
  for (rank.chunk = 0; rank.chunk < layout.pipeline().chunks(); ++rank.chunk) {
    for (const LocalParameter& parameter : layout.parameters(rank, modules)) {
      if (parameter.trainable) elements = checked_add(elements, parameter.elements, "model");
    }
  }
  return elements;
}

ModelBuffer& buffer_of(std::vector<ModelBuffer>& buffers, DType dtype) {
  const auto at = std::find_if(buffers.begin(), buffers.end(),
                               [&](const ModelBuffer& buffer) { return buffer.dtype == dtype; });
  if (at != buffers.end()) return *at;
  return buffers.emplace_back(ModelBuffer{dtype, {}, {}});
}

// The buffers of one model chunk (rank.chunk) in an optimizer of routed experts, or another.
std::vector<ModelBuffer> chunk_buffers(const ModelLayout& layout, const BufferChoice& choice,
                                       const RankCoordinates& rank, bool experts) {
  const RunArguments& run = layout.run();
  std::vector<ModelBuffer> buffers;
  for (LocalParameter& parameter : layout.parameters(rank, choice.modules)) {
    const bool in_expert_buffer = choice.separate_experts && parameter.routed_expert;
    if (!parameter.trainable || in_expert_buffer != experts) continue;
    if (choice.is_elsewhere(parameter)) continue;
    buffer_of(buffers, parameter.dtype).parameters.push_back(std::move(parameter));
  }
  const bool counted = run.bucket_count && rank.stage == 0 && rank.chunk == 0;
  const int64_t elements = counted ? trainable_elements(layout, choice.modules, rank) : 0;
  for (ModelBuffer& buffer : buffers) {
    std::vector<FlatParameter> sizes;
    sizes.reserve(buffer.parameters.size());
    for (const LocalParameter& parameter : buffer.parameters) {
      sizes.push_back({parameter.elements, parameter.shared_embedding});
    }
    buffer.flat = lay_out_buffer(run, rank, experts, sizes, elements);
  }
  return buffers;
}

}  // namespace

bool experts_are_separate(const RunArguments& run) {
  return run.expert > 1 || (run.experts > 0 && run.expert_tensor != run.tensor);
}

std::vector<RankOptimizer> rank_optimizers(const RunArguments& run, int64_t chunks,
                                           bool separate_experts) {
  std::vector<RankOptimizer> optimizers = {{0, chunks, false}};
  if (run.overlap_param_gather_with_step && chunks > 1) {
    optimizers = {{0, 1, false}, {1, chunks, false}};
  }
  if (separate_experts) optimizers.push_back({0, chunks, true});
  return optimizers;
}

RankGroups::RankGroups(const RunArguments& run, bool experts)
    : tensor_(run.tensor),
      expert_tensor_(run.expert_tensor),
      expert_(run.expert),
      count_(experts ? checked_multiply(run.expert_tensor, run.expert, "expert ranks")
                     : run.tensor),
      data_ranks_(experts ? run.expert_data_parallel() : run.dense_data_parallel()),
      stage_ranks_(std::max(run.world_size / run.pipeline, count_)) {}

RankCoordinates RankGroups::rank(int64_t stage, int64_t number) const {
  return {number % tensor_, number % expert_tensor_, number / expert_tensor_ % expert_, stage, 0};
}

int64_t RankGroups::global_rank(int64_t stage, int64_t number, int64_t data) const {
  return number + count_ * data + stage_ranks_ * stage;
}

RankGroups::Place RankGroups::place_of(int64_t global_rank) const {
  const int64_t in_stage = global_rank % stage_ranks_;
  return {global_rank / stage_ranks_, in_stage % count_, in_stage / count_};
}

std::vector<OptimizerGroup> optimizer_groups(const RunArguments& run,
                                             const std::vector<RankOptimizer>& chain,
                                             int64_t before) {
  std::vector<OptimizerGroup> all;
  for (size_t i = 0; i < chain.size(); ++i) {
    const RankGroups ranks(run, chain[i].experts);
    const bool several = chain.size() > 1 || before > 0;
    const int64_t chained = several ? before + static_cast<int64_t>(i) : -1;
    for (int64_t number = 0; number < ranks.count(); ++number) {
      all.push_back({i, chain[i], ranks, number, chained});
    }
  }
  return all;
}

std::vector<ModelBuffer> optimizer_buffers(const ModelLayout& layout, const BufferChoice& choice,
                                           RankCoordinates rank, const RankOptimizer& optimizer) {
  std::vector<ModelBuffer> buffers;
  for (rank.chunk = optimizer.first_chunk; rank.chunk < optimizer.end_chunk; ++rank.chunk) {
    std::ranges::move(chunk_buffers(layout, choice, rank, optimizer.experts),
                      std::back_inserter(buffers));
  }
  return buffers;
}

std::vector<BufferShard> shards_of_rank(const ModelBuffer& buffer, int64_t data_ranks,
                                        int64_t data_rank) {
  std::vector<BufferShard> shards;
  const std::vector<std::vector<size_t>> members = parameters_of_buckets(buffer.flat);
  for (size_t bucket = 0; bucket < members.size(); ++bucket) {
    const int64_t part = buffer.flat.buckets[bucket].elements / data_ranks;
    const int64_t part_begin = part * data_rank, part_end = part_begin + part;
    for (const size_t parameter : members[bucket]) {
      int64_t begin = buffer.flat.places[parameter].begin;
      for (const Shard& shard : buffer.parameters[parameter].shards) {
        const int64_t elements = shard.elements("part of a model tensor");
        const int64_t from = std::max(begin, part_begin);
        const int64_t to = std::min(begin + elements, part_end);
        if (from < to) {
          Shard held = shard;
          held.rank = data_rank;
          if (to - from < elements) held.run_begin = from - begin, held.run_count = to - from;
          shards.push_back({std::move(held), parameter, bucket, from});
        }
        begin += elements;
      }
    }
  }
  return shards;
}

FlatBuffer lay_out_buffer(const RunArguments& run, const RankCoordinates& rank, bool experts,
                          std::span<const FlatParameter> parameters, int64_t rank_elements) {
  const int64_t ranks = experts ? run.expert_data_parallel() : run.dense_data_parallel();
  return lay_out_flat_buffer(
      parameters, {std::max<int64_t>(ranks, 1),
                   run.bucket_limit(rank.stage, rank.chunk, rank_elements), run.pad_buckets});
}

}  // namespace ferry
