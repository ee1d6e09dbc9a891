// The last step of every export: tensors into files.
#pragma once

#include <cstdint>

#include "convert/export.h"
#include "convert/export/export_tensors.h"

namespace ferry {

/// Gives the tensors places in the files of a plan, in their order, and puts the index among the
/// small files where there are several. `result.plan.source` must be set.
void lay_out(ExportedTensors tensors, uint64_t max_shard_bytes, Export& result);

}  // namespace ferry
