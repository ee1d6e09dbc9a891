// Which of several processes moves what, where all write into the same files.
#pragma once

#include <cstdint>
#include <vector>

#include "ckpt/core/plan.h"

namespace ferry {

/// Who writes each target entry and seals each item, by position in the plan. Whole entries, and
/// the entries of one item have one owner. Neighbours stay together, and owners have about as many
/// bytes as each other: how many more, the largest entry says.
struct PlanShares {
  std::vector<uint32_t> entries, items;
};

PlanShares share_out(const Plan& plan, uint32_t owners);

/// What of a checked plan `owner` runs: its entries and items, in the plan's order, over all of the
/// plan's files. Without literals: they must stand before anyone begins.
Plan share_of(const Plan& plan, const PlanShares& shares, uint32_t owner);

}  // namespace ferry
