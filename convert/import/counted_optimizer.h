// The optimizer's state that a training program leaves next to a Hugging Face model: optimizer.pt
// of transformers' Trainer, optimizer.bin of Accelerate. It counts parameters, through its groups,
// and names none:
//
//   state[0..N-1]        {step, exp_avg, exp_avg_sq}
//   param_groups         of the Trainer two: decayed parameters, then biases and norms; or one of
//   all param_groups[G][params]   the numbers, in the order of model.parameters()
//
// Source: torch/optim/optimizer.py (state_dict), transformers/trainer.py (create_optimizer,
// get_decay_parameter_names), accelerate/checkpointing.py.
#pragma once

#include "ckpt/checkpoint.h"

namespace ferry {

/// Adds the state to `model`, of format hugging_face, as entries "optimizer.state.<kind>.<name>",
/// with its groups and steps. False, and nothing happens, where no such file is in its folder or
/// its groups name parameters, as FSDP gathers them. unsupported when names do not follow from
/// numbers beyond doubt: groups of another kind, shapes that no order explains, or several do.
bool add_counted_optimizer(Checkpoint& model);

}  // namespace ferry
