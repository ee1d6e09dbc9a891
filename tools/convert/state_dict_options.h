// A state dict of another program as the options of `ferry convert` choose and name it.
#pragma once

#include "convert/state_dict/state_dict.h"
#include "tools/convert/convert_job.h"

namespace ferry::tool {

/// As read_state_dict(); invalid, too, when a pattern or a name fits no tensor.
StateDict open_state_dict(const Checkpoint& checkpoint, const ConvertOptions& options);

}  // namespace ferry::tool
