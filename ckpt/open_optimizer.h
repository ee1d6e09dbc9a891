// The optimizer's state next to a model, in a folder of its own, as Accelerate and Trainer save it
// with FSDP.
//
//   pytorch_model_fsdp_0/   optimizer_0/     a PyTorch DCP each
//   pytorch_model_fsdp.bin  optimizer.bin    a file of torch.save each, gathered
//
// Source: accelerate/utils/fsdp_utils.py (save_fsdp_optimizer).
#pragma once

#include <string>

#include "ckpt/checkpoint.h"

namespace ferry {

/// Adds to `model`, the part `part` of `folder`, the optimizer's state that goes with it, under
/// names that begin with "optimizer.". Nothing happens where there is none; where it cannot be
/// read, the reason is in the model's `optimizer_problem`.
void add_optimizer_beside(Checkpoint& model, const std::string& folder, const std::string& part);

/// The same of a folder with a PyTorch DCP, or a file of torch.save, that is known to hold it.
void add_optimizer_part(Checkpoint& model, const std::string& path);

}  // namespace ferry
