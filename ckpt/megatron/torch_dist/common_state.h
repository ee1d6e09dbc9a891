// The common state of a torch_dist checkpoint: all that is not sharded, one dict.
//
// Source: megatron/training/checkpointing.py (generate_state_dict, load_checkpoint,
// _build_sharded_state_dict_metadata), core/optimizer/{optimizer,distrib_optimizer}.py.
#pragma once

#include "ckpt/format/pickle/values/value.h"
#include "ckpt/megatron/state/run_state.h"
#include "ckpt/megatron/torch_dist/torch_dist_options.h"

namespace ferry {

/// The dict: args, checkpoint_version, iteration, the optimizer's parameter groups, the state's own
/// members and content_metadata. args has the format, the optimizer's form and whether there are
/// random number states for this grid (no_save_rng): loading asks for what they promise. For an
/// older release than today's args hold plain values only (plain_value.h).
LoadedValue common_state(const RunState& state, ShardedOptimizer optimizer, CoreRelease release);

}  // namespace ferry
