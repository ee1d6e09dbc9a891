// How torch_dist checkpoints stack the tensors of layers and experts.
#pragma once

#include <string>

#include "ckpt/base/box.h"
#include "ckpt/megatron/model/architecture.h"

namespace ferry {

/// Where a canonical tensor is in the checkpoint's: a sub-tensor of a stack.
struct StackPlace {
  std::string name;
  Dims at;       // leading coordinates (layer, expert)
  Dims extents;  // of those axes
};

/// Layers are stacked where all are alike and not numbered all the same, experts always
/// (convert/import/import_tensors.h).
StackPlace stack_place(const std::string& canonical, const Architecture& architecture);

}  // namespace ferry
