// A lone file, opened as a checkpoint.
#pragma once

#include <memory>
#include <string>

#include "ckpt/checkpoint.h"
#include "ckpt/io/file_system.h"

namespace ferry {

/// A safetensors file, one of torch.save, or a .nemo archive, by its first bytes. invalid for a
/// part of a checkpoint; unsupported, with what to do, for anything else.
Checkpoint open_checkpoint_file(std::shared_ptr<const FileSystem> file_system,
                                const std::string& path, bool raw);

/// Where the files of a checkpoint at `path` are: `file_system`, in which a tar archive at `path`
/// is a folder.
std::shared_ptr<const FileSystem> with_archive(std::shared_ptr<const FileSystem> file_system,
                                               const std::string& path);

/// True where the first bytes are those of torch.save, of either form.
bool is_torch_save_file(const ReadableFile& file);

}  // namespace ferry
