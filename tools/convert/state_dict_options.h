// A state dict of another program as the options of `ferry convert` choose and name it.
#pragma once

#include "convert/state_dict/state_dict.h"
#include "tools/convert/convert_job.h"

namespace ferry::tool {

/// True of state dicts, and of Hugging Face folders where an option says what their tensors are.
bool is_read_as_state_dict(const Checkpoint& checkpoint, const ConvertOptions& options);

/// As read_state_dict(); invalid, too, when a pattern or a name fits no tensor.
StateDict open_state_dict(const Checkpoint& checkpoint, const ConvertOptions& options);

}  // namespace ferry::tool
