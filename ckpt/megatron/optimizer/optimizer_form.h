// What a run's state holds of its optimizer, brought into the form that a kind of optimizer has.
//
// The distributed optimizer keeps an fp32 copy of every parameter; without it only those that the
// model holds in 16 bits have one, and the model's own tensor is the master of the others.
#pragma once

#include <functional>
#include <string_view>

#include "ckpt/megatron/state/run_state.h"

namespace ferry {

/// Whether the arguments say that the run had a distributed optimizer.
bool has_distributed_optimizer(const RunState& state);

/// Makes them say so, or not. The tensors stay as they are: writers bring them into form.
void set_distributed_optimizer(RunState& state, bool distributed);

using KeyPredicate = std::function<bool(std::string_view key)>;  // of model tensors, by name

/// Gives every parameter that has optimizer state an fp32 copy, made of the model's tensor where
/// there is none. `of`: of these parameters alone.
void add_masters(RunState& state, const KeyPredicate& of = nullptr);

/// Takes those copies away whose model tensor is fp32: they are equal to it.
void drop_doubled_masters(RunState& state, const KeyPredicate& of = nullptr);

}  // namespace ferry
