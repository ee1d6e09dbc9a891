// The optimizers' parameter groups: hyperparameters and step, without parameters.
//
// Megatron-LM has one optimizer, or two where routed experts have one of their own. Each has a list
// of groups: with weight decay, then without. They are stored in the common state
// (fully_reshardable, plain), in an object a model-parallel group (dp_reshardable) or in every
// rank's file (legacy); loading finds groups by what is in them (wd_mult, lr_mult,
// is_expert_parallel, is_decoupled_lr, ...), not by position.
//
// Source: megatron/core/optimizer/{__init__,optimizer,distrib_optimizer}.py.
#pragma once

#include <vector>

#include "ckpt/checkpoint.h"
#include "ckpt/format/pickle/values/value.h"

namespace ferry {

struct OptimizerGroups {
  std::vector<LoadedValue> param_groups;  // one list an optimizer
  LoadedValue grad_scaler;                // none without fp16
};

/// Collects them from wherever the checkpoint's layout keeps them; empty when it has none.
/// `optimizer` is the common state's member of that name, or a legacy file's; null: there is none.
/// The elements of tensors in what is collected are read, those of the optimizer's state next to it
/// are not.
OptimizerGroups read_param_groups(const Catalog& catalog, const Object* optimizer);

/// The groups for a run that has one optimizer, or two when `separate_experts`: the experts' is
/// made of the first one's groups, or dropped, where the source has another number. A group without
/// weight decay is made for experts only where `expert_biases`.
std::vector<LoadedValue> adapt_param_groups(const std::vector<LoadedValue>& groups,
                                            bool separate_experts, bool expert_biases);

/// The same where the first optimizer has matrices alone (optimizer/matrix_optimizer.h): if it is
/// layer-wise, a parameter group of it is for routed experts, else they have one of their own.
std::vector<LoadedValue> adapt_groups_of_matrices(const std::vector<LoadedValue>& groups,
                                                  bool separate_experts, bool layer_wise);

}  // namespace ferry
