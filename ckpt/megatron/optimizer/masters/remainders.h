// fp32 copies of parameters that Transformer Engine's optimizer keeps as 16-bit remainders.
//
// With `--use-precision-aware-optimizer` a bf16 run holds no fp32 copy ("master") of a parameter,
// but its lower 16 bits; the upper ones are the model's own. Megatron-LM stores these remainders
// where other runs have their masters: as 16-bit integers in flat buckets (dp_reshardable), as fp32
// that holds the same integers wherever it gathers state before a save. Nothing in a checkpoint
// says which it is.
//
// Source: megatron/core/optimizer/distrib_optimizer.py (_get_main_param_and_optimizer_states),
// optimizer_config.py (store_param_remainders), transformer_engine/pytorch/optimizers/
// fused_adam.py.
#pragma once

#include "ckpt/checkpoint.h"
#include "ckpt/megatron/state/run_state.h"

namespace ferry {

/// Makes the fp32 master weights of what is stored as their remainders (Entry::remainders), so that
/// whoever reads the entries sees true fp32 values. Recognised by dtype; where that is fp32, by
/// some values of a few tensors, which are read unless the arguments rule it out. Where the weights
/// that belong to them are not there the optimizer's state is left out, with the reason.
void recognise_remainders(Checkpoint& checkpoint);

/// Whether a catalog has masters that are stored so.
bool has_remainders(const Catalog& catalog);

/// Gives every bf16 parameter with a master a 16-bit remainder in its place, as Megatron-LM loads
/// them from dp_reshardable state, and a weight that is the upper half of the master. Returns how
/// many.
int64_t split_masters(RunState& state);

}  // namespace ferry
