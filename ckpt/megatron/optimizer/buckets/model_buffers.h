// Which flat buffers the distributed optimizers of a run have, who holds them, and where each
// parameter is in them: what readers and writers of flat optimizer state agree on.
//
// A rank has one optimizer, or several in a chain: one for the first model chunk where its
// parameters are gathered while the others are stepped, and one for routed experts where their
// ranks differ from the others'. An optimizer has one buffer a model chunk and dtype. Ranks that
// differ in their data-parallel rank alone are a group, and share its buffers.
//
// Source: megatron/core/optimizer/__init__.py (get_megatron_optimizer), parallel_state.py (the
// order of ranks), distributed/param_and_grad_buffer.py (group_params_for_buffers).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ckpt/megatron/model/model_layout.h"
#include "ckpt/megatron/optimizer/buckets/flat_buffer.h"

namespace ferry {

/// One of a rank's optimizers; its place in the chain is its place among them.
struct RankOptimizer {
  int64_t first_chunk = 0, end_chunk = 0;  // model chunks that it has parameters of
  bool experts = false;                    // routed experts and nothing else
};

/// Whether Megatron-LM gives routed experts an optimizer of their own today. Releases before 2026
/// do so for expert parallelism alone.
bool experts_are_separate(const RunArguments& run);

/// In their order. `chunks`: model chunks of a stage.
std::vector<RankOptimizer> rank_optimizers(const RunArguments& run, int64_t chunks,
                                           bool separate_experts);

/// Groups of ranks of one pipeline stage: one a tensor rank, or for experts one an expert-tensor
/// and expert rank.
class RankGroups {
 public:
  RankGroups(const RunArguments& run, bool experts);

  int64_t count() const noexcept { return count_; }
  /// Number of group `number` of a stage through the model: dp_group_idx.
  int64_t index(int64_t stage, int64_t number) const { return number + count_ * stage; }
  /// The first of its ranks, at chunk 0.
  RankCoordinates rank(int64_t stage, int64_t number) const;
  /// Data-parallel ranks that share a buffer, context ranks included; 0: the arguments do not say.
  int64_t data_ranks() const noexcept { return data_ranks_; }
  /// Global rank of one of them.
  int64_t global_rank(int64_t stage, int64_t number, int64_t data) const;
  /// The coordinates of a global rank: the inverse.
  struct Place {
    int64_t stage = 0, number = 0, data = 0;
  };
  Place place_of(int64_t global_rank) const;

 private:
  int64_t tensor_, expert_tensor_, expert_;
  int64_t count_, data_ranks_, stage_ranks_;
};

/// Data-parallel ranks that share one optimizer of their chain.
struct OptimizerGroup {
  size_t position = 0;  // of the optimizer in the chain
  RankOptimizer optimizer;
  RankGroups ranks;      // the groups that this is one of
  int64_t number = 0;    // of this one in its stage
  int64_t chained = -1;  // the position as keys spell it; -1: the only one
};

/// Those of one pipeline stage, optimizer by optimizer. `before`: optimizers of the chain that come
/// before these and have no flat buffers (a layer-wise one).
std::vector<OptimizerGroup> optimizer_groups(const RunArguments& run,
                                             const std::vector<RankOptimizer>& chain,
                                             int64_t before = 0);

/// How modules and optimizers were built.
struct BufferChoice {
  ModuleChoice modules;
  bool separate_experts = false;
  int64_t before = 0;  // as of optimizer_groups()
  /// By number of the model's tensor: those whose state is elsewhere, a tensor a parameter, and in
  /// none of these buffers. Empty: none.
  std::vector<bool> elsewhere = {};

  bool is_elsewhere(const LocalParameter& parameter) const {
    const uint32_t tensor = parameter.shards.front().tensor;
    return tensor < elsewhere.size() && elsewhere[tensor];
  }
};

struct ModelBuffer {
  DType dtype = DType::f32;
  std::vector<LocalParameter> parameters;  // in order of registration
  FlatBuffer flat;                         // places are those of `parameters`
};

/// The buffers of one of a rank's optimizers, model chunk by model chunk, as they are numbered.
/// `rank.chunk` does not count.
std::vector<ModelBuffer> optimizer_buffers(const ModelLayout& layout, const BufferChoice& choice,
                                           RankCoordinates rank, const RankOptimizer& optimizer);

/// A part of a model tensor whose optimizer state one data rank holds, and its place in the rank's
/// buffer.
struct BufferShard {
  Shard shard;           // a run of a box, or the box where it is whole; `tensor` of the model's
  size_t parameter = 0;  // position in ModelBuffer::parameters
  size_t bucket = 0;
  int64_t offset = 0;  // of the shard's first element, in elements from the bucket's start
};

/// What of a buffer data rank `data_rank` of `data_ranks` holds: each bucket is cut into equal
/// parts, one a rank, wherever parameters begin. By rising bucket and offset; the elements between
/// shards are padding. An optimizer allocates by it, and names by it what it saves and loads.
std::vector<BufferShard> shards_of_rank(const ModelBuffer& buffer, int64_t data_ranks,
                                        int64_t data_rank);

/// Places the parameters of a buffer of that chunk. `rank_elements`: of all parameters of all
/// chunks of the rank; matters to the first one, where the run says a number of buckets.
FlatBuffer lay_out_buffer(const RunArguments& run, const RankCoordinates& rank, bool experts,
                          std::span<const FlatParameter> parameters, int64_t rank_elements);

}  // namespace ferry
