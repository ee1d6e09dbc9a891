// The part of a plan that one of several processes runs: some of its files.
#pragma once

#include <vector>

#include "ckpt/core/plan.h"

namespace ferry {

/// The part of a checked plan that writes its target files `wanted` (one bool a file), complete in
/// itself but for check(): that the parts together use every source element, check() of the whole
/// has shown. It has an entry for each chunk of the files, of the chunk's shape, and the files'
/// items in their order. Refers to the same source.
Plan part_of(const Plan& plan, const std::vector<bool>& wanted);

}  // namespace ferry
