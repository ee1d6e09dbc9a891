// Whether what is to be written has room where it is to lie.
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

/// What is free for new files in `folder`; nothing where that is not told. exhausted where `bytes`
/// are surely more: they take that much, and what they replace is removed after them. A warning
/// where they may be.
std::optional<uint64_t> check_room(const FileSystem& file_system, const std::string& folder,
                                   uint64_t bytes, std::vector<std::string>& warnings);

}  // namespace ferry
