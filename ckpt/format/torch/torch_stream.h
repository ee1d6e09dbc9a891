// A torch.save archive read as a stream: its zip directory is at the end, so the records are
// followed from the front.
#pragma once

#include <cstdint>
#include <string>

#include "ckpt/format/pickle/values/value.h"
#include "ckpt/io/zstd_stream.h"

namespace ferry {

struct StreamedTensor {
  StoredTensor tensor;
  uint64_t storage_position = 0;  // of its storage's first byte, in the decoded stream
};

/// Reads the archive of one tensor up to the beginning of the tensor's storage. corrupt when it is
/// something else or has more than a MiB before the storage.
StreamedTensor find_streamed_tensor(ZstdStream& stream, const std::string& what);

}  // namespace ferry
