// The extra states of a model's modules, for checkpoints that come from where there are none.
//
// Transformer Engine's modules, and Megatron-LM's own linear layers for its sake, have one object
// each besides their parameters: FP8 scaling factors, or nothing. Loading requires every one of
// them, so a checkpoint must hold them even when they are empty. Which modules there are depends on
// the loader's implementation; it ignores others.
//
// Source: megatron/core/transformer/utils.py (make_sharded_object_for_checkpoint),
// tensor_parallel/layers.py, extensions/transformer_engine.py.
#pragma once

#include <vector>

#include "ckpt/core/placed.h"
#include "ckpt/megatron/state/run_state.h"

namespace ferry {

/// Empty extra states of every linear layer, norm and attention that the model's tensors imply, one
/// a layer and expert; none when the state has extra states of its own.
std::vector<KeptObject> missing_extra_states(const RunState& state);

}  // namespace ferry
