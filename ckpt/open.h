// Opens any checkpoint: the one door to the readers.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

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

/// Where a folder leads that holds no checkpoint itself.
struct CheckpointLead {
  std::string path;
  bool by_iteration = false;  // the iteration has been taken into account
  std::vector<std::string> notes;
};

/// For a Hugging Face download cache the snapshot, for a run of another program than Megatron-LM
/// the step that is asked for or was saved last. Nothing for all else. Errors as open_checkpoint().
std::optional<CheckpointLead> leads_to(const FileSystem& file_system, const std::string& path,
                                       const std::string& iteration);

/// True where open_checkpoint() takes the folder `path` itself, or a part of it, for a checkpoint.
bool is_checkpoint_folder(const FileSystem& file_system, const std::string& path);

/// What the folder `path` holds itself, by the names in it; nothing when that
/// is no checkpoint, or a run folder, which holds several.
std::optional<Format> format_of_folder(const FileSystem& file_system, const std::string& path);

}  // namespace ferry
