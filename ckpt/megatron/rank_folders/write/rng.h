// Random number states of the ranks of a legacy checkpoint.
//
// Loading restores the state in a rank's file whatever the grid is that it was saved on. Where the
// source has states of the target's grid they are kept. Where it has not, each rank gets the state
// of a rank of the source's with the seeds that Megatron-LM would give it: the streams of ranks
// that were there before go on, the others start at the same place of their own stream.
//
// Source: megatron/core/tensor_parallel/random.py (model_parallel_cuda_manual_seed),
// training/initialize.py (_set_random_seed).
#pragma once

#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/megatron/model/model_layout.h"
#include "ckpt/megatron/state/run_state.h"

namespace ferry {

/// The state for `rank`, made with `draft`; none when the run's state has none.
Value rng_of_rank(Draft& draft, const RunState& state, const RunArguments& run,
                  const RankCoordinates& rank);

/// Whether the states are those of the run's own grid.
bool has_rng_of_grid(const RunState& state, const RunArguments& run);

}  // namespace ferry
