// Checks free space and permissions where a target is to be written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/io/file_system.h"

namespace ferry {

/// The folder that `path` will be created in, or itself where it is there: the nearest that exists.
std::string nearest_folder(const FileSystem& file_system, const std::string& path);

/// io where nothing may be created in `folder`.
void check_permission(const FileSystem& file_system, const std::string& folder);

/// Free space for new files in `folder`; nothing where it is unknown. exhausted where `bytes`
/// surely do not fit (what they replace is removed only after them), a warning where they may not.
std::optional<uint64_t> check_room(const FileSystem& file_system, const std::string& folder,
                                   uint64_t bytes, std::vector<std::string>& warnings);

}  // namespace ferry
