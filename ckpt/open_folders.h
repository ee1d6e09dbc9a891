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

}  // namespace ferry
