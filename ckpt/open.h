// Opens any checkpoint: the one door to the readers.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "ckpt/checkpoint.h"
#include "ckpt/io/file_system.h"

namespace ferry {

struct OpenOptions {
  std::string iteration;  // of a run folder: a number, "release", or empty: the
                          // tracker decides
  bool raw = false;       // the entries as stored, before Megatron's meaning is applied
};

/// Opens a run folder, an iteration folder, a Hugging Face folder, a NeMo
/// folder or a single file.
Checkpoint open_checkpoint(std::shared_ptr<const FileSystem> file_system, const std::string& path,
                           const OpenOptions& options = {});

/// What the folder `path` holds itself, by the names in it; nothing when that
/// is no checkpoint, or a run folder, which holds several.
std::optional<Format> format_of_folder(const FileSystem& file_system, const std::string& path);

}  // namespace ferry
