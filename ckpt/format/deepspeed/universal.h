// The parameters of a universal checkpoint: zero/PARAMETER/{fp32,exp_avg,exp_avg_sq}.pt.
#pragma once

#include <string>
#include <vector>

#include "ckpt/core/catalog.h"
#include "ckpt/format/deepspeed/partitions.h"

namespace ferry {

/// Adds the parameters below `folder` and their optimizer state, in the order of their names. What
/// was made of stage 3 is flat: it gets its shape of `groups`. corrupt for a file that holds no
/// tensor, or one of another size; not_found for a parameter without fp32.pt.
void add_universal_parameters(Catalog& catalog, const std::string& folder,
                              const std::vector<ZeroGroup>& groups);

}  // namespace ferry
