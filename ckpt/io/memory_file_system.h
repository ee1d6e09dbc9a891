// A file system in memory, for tests and for plans whose target is memory.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "ckpt/io/file_system.h"

namespace ferry {

/// Paths are plain strings with '/' between parts; folders exist when created or when a file lies
/// below them. Files and folders may be used from several threads.
std::shared_ptr<FileSystem> memory_file_system();

/// Adds a file, with the folders above it, replacing one of that name.
void put_file(FileSystem& memory, const std::string& path, std::string content);

}  // namespace ferry
