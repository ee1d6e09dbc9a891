// Bytes on their way to the disk while the next ones are being made.
#pragma once

#include <cstdint>

#include "ckpt/io/file_system.h"

namespace ferry {

/// Asks the operating system to begin to write these bytes, which were written before, to disk, and
/// returns at once: sync() has less to wait for. A hint, for large files that are written in order;
/// nothing where the file is none of the operating system's.
void begin_write_back(WritableFile& file, uint64_t offset, uint64_t bytes) noexcept;

}  // namespace ferry
