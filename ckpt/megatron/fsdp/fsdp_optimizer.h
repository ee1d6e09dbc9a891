// Optimizer state that PyTorch's own state dicts hold, as one entry a parameter of the model.
//
// With Megatron-FSDP (fsdp_dtensor) it is stored by parameters' names. With torch_dcp it is stored
// under numbers, which count through the parameter groups: the members of a group are the
// parameters of one kind (with weight decay, without it) in order of registration, which is that of
// the model's state dict.
//
// Source: megatron/core/optimizer/{__init__,optimizer,distrib_optimizer}.py.
#pragma once

#include <string>
#include <vector>

#include "ckpt/core/catalog.h"
#include "ckpt/megatron/fsdp/fsdp_model.h"

namespace ferry {

/// The entries of all of `stored` whose keys are an optimizer's, in the order of the model's
/// tensors. `parameters` are the model's, under their modules' names, in the order of the state
/// dict. `members[k]` are the numbers of the parameters of group k (of all optimizers in turn);
/// empty where state is stored by names. mismatch when the state does not fit the model.
std::vector<Entry> fsdp_optimizer_entries(const std::vector<Entry>& stored, const FsdpModel& model,
                                          const std::vector<ModelTensor>& parameters,
                                          const std::vector<std::vector<int64_t>>& members);

/// Whether an optimizer's entry is a step that PyTorch's own optimizers keep with each parameter.
bool is_step_of_parameter(const Entry& entry);

}  // namespace ferry
