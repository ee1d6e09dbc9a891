// The part of a plan that one of several processes runs: some of its files.
#pragma once

#include <cstdint>
#include <vector>

#include "ckpt/core/plan.h"

namespace ferry {

struct PlanPart {
  Plan plan;                    // an entry for each chunk of the files, of the chunk's shape
  std::vector<uint32_t> items;  // where the part's items stand in the whole plan
};

/// The part of a checked plan that writes its target files `wanted` (one bool a file), complete in
/// itself but for check(): that the parts together use every source element, check() of the whole
/// has shown. Refers to the same source.
PlanPart part_of(const Plan& plan, const std::vector<bool>& wanted);

}  // namespace ferry
