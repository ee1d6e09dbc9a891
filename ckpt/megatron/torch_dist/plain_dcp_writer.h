// Writes a run's state as a plain PyTorch distributed checkpoint: what any program that has PyTorch
// reads, Megatron-LM or not.
//
// Keys are flat: the tensors under the names and shapes that they have in a torch_dist checkpoint,
// and the members of the common state (args, iteration, optimizer, opt_param_scheduler, ...) as
// objects. Objects hold Python's and PyTorch's own types only: a member of an enum becomes its
// value, any other instance the name of its class. Random number states, extra states of modules
// and the state of rerun checks, which mean something to Megatron-LM only, are left out, with a
// warning.
//
// What is not a run of Megatron-LM's (plain_state_of) is written as it is: tensors whole, shared
// out over ranks, and objects.
//
// Source: torch/distributed/checkpoint/{default_planner,filesystem}.py.
#pragma once

#include <cstdint>

#include "ckpt/core/placed.h"
#include "ckpt/megatron/state/run_state.h"
#include "ckpt/megatron/torch_dist/common_state.h"

namespace ferry {

struct PlainDcpOptions {
  bool optimizer = true;
  bool zstd = false;  // the plan is for run_compressed()
  int64_t ranks = 1;  // to write what is not a run's; otherwise the arguments decide
};

/// Plans the checkpoint's folder, a file a rank of the layout of `state.args`. Otherwise as
/// plan_torch_dist().
PlannedOutput plan_plain_dcp(RunState state, const PlainDcpOptions& options);

}  // namespace ferry
