// Writes Megatron-LM's legacy checkpoints (`--ckpt-format torch`): what rank_folders.h reads.
//
// One folder a model-parallel rank at the layout of the state's arguments, each with
// model_optim_rng.pt: arguments, iteration, the rank's own tensors by the names of its modules, the
// optimizer, scheduler and random number states. With the distributed optimizer, its flat buffers
// are in distrib_optim.pt next to it.
//
// Source: megatron/training/checkpointing.py (get_checkpoint_name, generate_state_dict,
// save_checkpoint, load_checkpoint).
#pragma once

#include "ckpt/core/placed.h"
#include "ckpt/megatron/state/run_state.h"

namespace ferry {

struct LegacyOptions {
  /// In the form that the arguments say (use_distributed_optimizer); false: left out, and the
  /// arguments then say so (no_save_optim).
  bool optimizer = true;
  /// Each target chunk is to be in the memory of one rank of the target's layout, which its
  /// Shard::rank names: flat buffers are then cut as the distributed optimizer's ranks hold them.
  bool by_ranks = false;
};

/// Plans the folder of one iteration. `state` has been brought to the target's layout
/// (megatron/retarget.h) or made for it. Each tensor has a storage
/// of its own, row-major. unsupported when the format cannot hold the layout (expert tensor ranks
/// that do not go along with tensor ranks), the modules' order of parameters is not known, or the
/// arguments do not say by how many ranks;
/// mismatch when a tensor cannot be split over the target's ranks or optimizer state is missing.
PlannedOutput plan_legacy(const RunState& state, const LegacyOptions& options);

}  // namespace ferry
