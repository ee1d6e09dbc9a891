// The optimizer in a state dict that names the parameters whose state it holds, as PyTorch's
// get_optimizer_state_dict() gives it: torchtitan, Accelerate and Trainer with FSDP, and whatever
// saves {"model": ..., "optim": ...} so.
//
//   <optimizer>.state.<parameter>.{step,exp_avg,exp_avg_sq}
//   <optimizer>.param_groups.<number of a group, or parameter>.{lr,betas,eps,weight_decay}
//
// Source: torch/distributed/checkpoint/state_dict.py.
#pragma once

#include <string>
#include <vector>

#include "ckpt/checkpoint.h"

namespace ferry {

/// Renames the state of the model's parameters to "optimizer.state.<kind>.<name of the parameter's
/// tensor>", and reads groups and steps. What is of no such form stays as it is; where state of
/// such a form cannot be said to be that of the model's parameters, the reason stands in
/// `optimizer_problem`. Returns notes for the user.
std::vector<std::string> name_optimizer(Checkpoint& checkpoint);

/// Adds the optimizer's state next to a Hugging Face model, and gives it such names: what
/// its files do not name is counted (convert/import/counted_optimizer.h). Nothing happens where
/// there is none.
std::vector<std::string> add_optimizer_of_folder(Checkpoint& model);

}  // namespace ferry
