// What a run's state holds of its optimizer, brought into the form that a kind of optimizer has.
//
// The distributed optimizer keeps an fp32 copy of every parameter; without it only those that the
// model holds in 16 bits have one, and the model's own tensor is the master of the others.
#pragma once

#include "ckpt/megatron/state/run_state.h"

namespace ferry {

/// Whether the arguments say that the run had a distributed optimizer.
bool has_distributed_optimizer(const RunState& state);

/// Makes them say so, or not. The tensors stay as they are: writers bring them into form.
void set_distributed_optimizer(RunState& state, bool distributed);

/// Gives every parameter that has moments an fp32 copy, made of the model's tensor where there is
/// none.
void add_masters(RunState& state);

/// Takes those copies away whose model tensor is fp32: they are equal to it.
void drop_doubled_masters(RunState& state);

}  // namespace ferry
