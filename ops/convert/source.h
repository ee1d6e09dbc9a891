// The checkpoint to convert, opened as the options choose and name it.
#pragma once

#include <memory>
#include <string>

#include "convert/state_dict/state_dict.h"
#include "ops/convert.h"

namespace ferry {

/// Opens the checkpoint to convert, or one to fill it from.
Checkpoint open_source(const std::shared_ptr<const FileSystem>& file_system,
                       const std::string& path, const ConvertOptions& options);

/// True of state dicts, and of Hugging Face folders where an option says what their tensors are.
bool is_read_as_state_dict(const Checkpoint& checkpoint, const ConvertOptions& options);

/// As read_state_dict(); invalid, too, when a pattern or a name fits no tensor.
StateDict open_state_dict(const Checkpoint& checkpoint, const ConvertOptions& options);

}  // namespace ferry
