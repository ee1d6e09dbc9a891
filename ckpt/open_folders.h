// Formats whose readers know nothing of Checkpoint, opened as one.
#pragma once

#include <memory>
#include <string>

#include "ckpt/checkpoint.h"
#include "ckpt/io/file_system.h"

namespace ferry {

/// `raw` does not matter: their entries have no other meaning.
Checkpoint open_hugging_face_folder(std::shared_ptr<const FileSystem> file_system,
                                    const std::string& folder, bool raw);
Checkpoint open_deepspeed_folder(std::shared_ptr<const FileSystem> file_system,
                                 const std::string& folder, bool raw);
Checkpoint open_fsdp_folder(std::shared_ptr<const FileSystem> file_system,
                            const std::string& folder, bool raw);
Checkpoint open_plain_dcp(std::shared_ptr<const FileSystem> file_system, const std::string& folder,
                          bool raw);

}  // namespace ferry
