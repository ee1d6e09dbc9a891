// Writes a run's state as `--ckpt-format fsdp_dtensor`: what Megatron-LM loads with Megatron-FSDP
// (`--use-megatron-fsdp`), at any number of ranks.
//
// The model's tensors are the fp32 masters, under their modules' names, gate and up of gated
// projections apart; moments have the same names. Every parameter has its own copy of its parameter
// group, and every leaf of dicts and lists is an object of its own. The state of rerun checks and
// extra states of modules, which the format has no place for, are left out with a warning.
//
// Source: megatron/core/transformer/fsdp_dtensor_checkpoint.py, megatron/core/optimizer/
// distrib_optimizer.py (sharded_param_state_fsdp_dtensor), megatron/training/checkpointing.py.
#pragma once

#include "ckpt/core/placed.h"
#include "ckpt/megatron/state/run_state.h"

namespace ferry {

struct FsdpOptions {
  bool optimizer = true;
  bool zstd = false;  // the plan is for run_compressed()
};

/// Plans the folder of one iteration, a file a rank of the arguments' run; otherwise as
/// plan_torch_dist(). invalid where the arguments ask for pipeline stages, whose layers this format
/// numbers alike; unsupported without parameter groups.
PlannedOutput plan_fsdp_dtensor(RunState state, const FsdpOptions& options);

}  // namespace ferry
