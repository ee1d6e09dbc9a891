// The optimizer's state of an import: entries "optimizer.state.<kind>.<parameter>" with
// transformers' names of the parameters become Megatron-LM's, by the rules of the model's tensors.
//
// What Megatron-LM's optimizers need in addition is made of the source's parameter groups: one
// group with weight decay, one without, and a schedule that keeps the learning rate.
//
// Source: megatron/core/optimizer/__init__.py (_get_param_groups),
// megatron/core/optimizer_param_scheduler.py.
#pragma once

#include "ckpt/checkpoint.h"
#include "ckpt/megatron/model/architecture.h"
#include "ckpt/megatron/state/run_state.h"
#include "convert/import/import_tensors.h"
#include "convert/model/family.h"

namespace ferry {

/// Appends the state of every kind that Adam has, fp32, to `tensors`, which are the model's; the
/// model's own are the masters where they are fp32. Other kinds and steps are dropped. unsupported,
/// with the reason, when the checkpoint holds no such state.
void add_optimizer(const Checkpoint& checkpoint, const Family& family,
                   const Architecture& architecture, bool drop_unknown, ImportedTensors& tensors);

/// Gives a run with such tensors its iteration, parameter groups, schedule and arguments; warnings
/// say what Megatron-LM's groups cannot say. unsupported when nothing says the groups or the
/// steps.
void add_optimizer_state(const Checkpoint& checkpoint, RunState& state);

}  // namespace ferry
