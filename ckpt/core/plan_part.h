// A plan's work shared out over processes, which all write into the same files.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ckpt/core/plan.h"

namespace ferry {

/// Which of `ranks` processes takes each of some things of these sizes, in the order of their
/// places. Large ones go to whoever has least, and small ones, which stay with their neighbours,
/// fill up to the mean: the busiest has at most a sixteenth of the mean more than it, or one thing.
std::vector<int64_t> share_out(std::span<const uint64_t> bytes, int64_t ranks);

/// Says of each target chunk and each item which of `ranks` processes writes it (Shard::rank,
/// Item::rank). Chunks of one item have one writer, who digests the item.
void share_out(Plan& plan, int64_t ranks);

/// What of a checked plan one rank writes: its chunks and items, in the plan's order, over all of
/// the plan's files. It has an entry for each chunk, of the shape of the chunk's box (of a run, of
/// one axis), and is complete in itself but for check(): that the parts together use every source
/// element, check() of the whole has shown. Without literals, which are written before anyone
/// begins, or are for the caller to add. Refers to the same source.
Plan part_of(const Plan& plan, int64_t rank);

}  // namespace ferry
