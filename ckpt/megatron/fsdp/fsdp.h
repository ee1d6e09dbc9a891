// Megatron-LM's checkpoints in PyTorch's own form: `--ckpt-format fsdp_dtensor` (Megatron-FSDP) and
// `torch_dcp` (`--use-torch-fsdp2`). Both are plain PyTorch distributed checkpoints of the run's
// state dict: a tensor or object a key, parameters under their modules' names.
//
// Source: megatron/training/checkpointing.py, core/transformer/fsdp_dtensor_checkpoint.py.
#pragma once

#include "ckpt/checkpoint.h"

namespace ferry {

/// Gives the entries of a plain DCP with Megatron-LM's arguments, whose keys are of such a state
/// dict, the names, shapes and meaning that they have in a torch_dist checkpoint, and sets the
/// format. Tensors of random number states become objects, under their keys. Nothing happens to any
/// other checkpoint. Where the model is none that can be put together, entries stay as they are and
/// a note says why. corrupt when tensors are incomplete.
void apply_fsdp_meaning(Checkpoint& checkpoint);

/// Whether the format is one of the two.
bool is_fsdp(Format format) noexcept;

}  // namespace ferry
