// How many files may be open, and closing some of them early.
#pragma once

#include <cstddef>
#include <memory>

#include "ckpt/io/file_system.h"

namespace ferry {

/// Files that this process may have open at once, by the operating system's limit.
size_t most_open_files();

/// Closes a file. io or exhausted for what the operating system tells only then: over NFS it is
/// closing that writes.
void close_file(std::unique_ptr<WritableFile> file);

}  // namespace ferry
