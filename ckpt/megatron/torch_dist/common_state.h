// The common state of a torch_dist checkpoint: all that is not sharded, one dict.
//
// Source: megatron/training/checkpointing.py (generate_state_dict, load_checkpoint,
// _build_sharded_state_dict_metadata), core/optimizer/{optimizer,distrib_optimizer}.py.
#pragma once

#include <vector>

#include "ckpt/core/placed.h"
#include "ckpt/format/pickle/values/value.h"
#include "ckpt/megatron/model/target_options.h"
#include "ckpt/megatron/state/run_state.h"

namespace ferry {

/// The dict: args, checkpoint_version, iteration, the optimizer's parameter groups, the state's own
/// members and content_metadata. args has the format, the optimizer's form and whether there are
/// random number states for this grid (no_save_rng): loading asks for what they promise. For an
/// older release than today's args hold plain values only (plain_value.h).
LoadedValue common_state(const RunState& state, ShardedOptimizer optimizer, CoreRelease release);

// The extra states of a model's modules, for checkpoints that come from where there are none.
//
// Transformer Engine's modules, and Megatron-LM's own linear layers for its sake, have one object
// each besides their parameters: FP8 scaling factors, or nothing. Loading requires every one of
// them, so a checkpoint must hold them even when they are empty. Which modules there are depends on
// the loader's implementation; it ignores others.
//
// Source: megatron/core/transformer/utils.py (make_sharded_object_for_checkpoint),
// tensor_parallel/layers.py, extensions/transformer_engine.py.

/// Empty extra states of every linear layer, norm and attention that the model's tensors imply, one
/// a layer and expert. A state that has extra states of its own lacks none but the output layer's,
/// which hybrid models have and GPTs do not.
std::vector<KeptObject> missing_extra_states(const RunState& state);

}  // namespace ferry
