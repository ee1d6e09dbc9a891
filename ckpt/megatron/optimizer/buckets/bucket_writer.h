// dp_reshardable: a run's optimizer state as the flat gradient buckets of its target layout.
//
// What decode_buckets() (bucket_optimizer.h) reads: one axis an entry, each data rank's part of
// each parameter a chunk, padding between parameters chunks of their own (zeros here, whatever
// memory held in Megatron-LM's files), and also the sizes of the buckets and the parameter groups
// of each group of ranks.
//
// Source: megatron/core/optimizer/distrib_optimizer.py (sharded_state_dict,
// sharded_param_state_dp_reshardable), optimizer.py (ChainedOptimizer.sharded_state_dict).
#pragma once

#include <vector>

#include "ckpt/core/placed.h"
#include "ckpt/megatron/model/run_arguments.h"
#include "ckpt/megatron/state/run_state.h"

namespace ferry {

struct PlacedBuckets {
  std::vector<PlacedTensor> tensors;
  std::vector<PlacedObject> objects;
  /// Elements that are written more than once (parameters that all tensor ranks hold, copies of
  /// tied embeddings, fp32 parameters that are their own master weight), as a plan lists them.
  std::vector<Dropped> repeated;
};

/// `target`: of the layout to write for, which the state has been brought to (vocabulary, parameter
/// groups: megatron/retarget.h). The order of the parameters is the source's (state.modules) where
/// that is known, else that of today's Megatron-LM. Linear in what is written; nothing is read.
/// Empty when the state has no optimizer. mismatch when a tensor cannot be split over the target's
/// ranks or optimizer state is missing; unsupported for modules whose order of parameters is not
/// known.
PlacedBuckets place_buckets(const RunState& state, const RunArguments& target);

/// What of them one rank of the target writes, as it does for itself: of each bucket the shards
/// that it holds, under recipes that are whole as far as `state` has them. `state` describes all
/// tensors of the model; of those that the rank has no part of, recipes may be empty.
PlacedBuckets place_buckets_of_rank(const RunState& state, const RunArguments& target,
                                    int64_t rank);

}  // namespace ferry
