// Which rank writes which box of which tensor.
#pragma once

#include <string>
#include <vector>

#include "ckpt/core/placed.h"
#include "ckpt/megatron/model/model_layout.h"
#include "ckpt/megatron/state/run_state.h"

namespace ferry {

/// The tensors, in their order, each with the boxes that the ranks of the layout's run hold: the
/// chunks that Megatron-LM's own save has. Optimizer state is placed like its model tensor. One of
/// the ranks that hold copies writes, so that all write about the same amount. `tensors` are those
/// of the layout's model (all of `layout.tensors()`, in any order) and their optimizer state,
/// shapes as there.
std::vector<PlacedTensor> place_tensors(std::vector<StateTensor> tensors, const ModelLayout& layout,
                                        const ModuleChoice& modules);

/// All tensors of the state, which are taken out of it, at the layout of its arguments. Where what
/// it holds is not a plain GPT model they are placed whole, and a warning says so.
std::vector<PlacedTensor> place_state(RunState& state);

/// Each tensor whole, where nothing is known of how ranks hold it: shared out over `ranks` ranks.
std::vector<PlacedTensor> place_whole(std::vector<StateTensor> tensors, int64_t ranks);

}  // namespace ferry
