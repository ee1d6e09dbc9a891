// Formats whose readers know nothing of Checkpoint, opened as one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "ckpt/checkpoint.h"
#include "ckpt/io/file_system.h"

namespace ferry {

/// With `raw`, entries are as they are stored; a Hugging Face folder's always are.
Checkpoint open_hugging_face_folder(std::shared_ptr<const FileSystem> file_system,
                                    const std::string& folder, bool raw);
Checkpoint open_deepspeed_folder(std::shared_ptr<const FileSystem> file_system,
                                 const std::string& folder, bool raw);
Checkpoint open_fsdp_folder(std::shared_ptr<const FileSystem> file_system,
                            const std::string& folder, bool raw);
Checkpoint open_plain_dcp(std::shared_ptr<const FileSystem> file_system, const std::string& folder,
                          bool raw);

/// Leaves out what Transformer Engine keeps as _extra_state of a module (scales of fp8, or nothing)
/// where it was stored as a tensor of bytes; other releases store an object. Notes how many.
void drop_extra_states(Checkpoint& checkpoint);

/// The iteration of "iter_0000100" (Megatron-LM), "step-100" (torchtitan), "global_step_100"
/// (verl), "global_step100" (DeepSpeed), by the last part of the path.
std::optional<int64_t> iteration_by_name(const std::string& folder);

// The optimizer's state next to a model, in a folder of its own, as Accelerate and Trainer save it
// with FSDP.
//
//   pytorch_model_fsdp_0/   optimizer_0/     a PyTorch DCP each
//   pytorch_model_fsdp.bin  optimizer.bin    a file of torch.save each, gathered
//
// Source: accelerate/utils/fsdp_utils.py (save_fsdp_optimizer).

/// Adds to `model`, the part `part` of `folder`, the optimizer's state that goes with it, under
/// names that begin with "optimizer.". Nothing happens where there is none; where it cannot be
/// read, the reason is in the model's `optimizer_problem`.
void add_optimizer_next_to(Checkpoint& model, const std::string& folder, const std::string& part);

/// The same of a folder with a PyTorch DCP, or a file of torch.save, that is known to hold it.
void add_optimizer_part(Checkpoint& model, const std::string& path);

}  // namespace ferry
