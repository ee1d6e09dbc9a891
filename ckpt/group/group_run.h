// A plan that the ranks of a group run together, into the same files.
#pragma once

#include <string>
#include <vector>

#include "ckpt/base/digest.h"
#include "ckpt/core/plan.h"
#include "ckpt/engine/engine.h"
#include "ckpt/group/group.h"
#include "ckpt/io/file_system.h"

namespace ferry {

/// As run(plan, file_system, folder, options), by all ranks: each has the same checked plan and the
/// same view of the file system, and moves its share (plan_part.h). Rank 0 creates the files and
/// writes what comes from no source; each rank syncs what it wrote. The bytes are those that one
/// process writes, and every rank returns all digests. Progress is scaled from the rank's own
/// share.
///
/// Any rank's error fails all, alike, once all ranks have come to their end.
std::vector<Digest> run_together(const Plan& plan, const FileSystem& file_system,
                                 const std::string& folder, Group& group,
                                 const EngineOptions& options);

/// The same for a plan that says itself who writes which chunk (Shard::rank) and who digests which
/// item (Item::rank), and whose source holds only what this rank writes. An item whose chunks have
/// several writers is read back by its own rank once all of it is written. invalid as check_part().
std::vector<Digest> run_by_ranks(const Plan& plan, const FileSystem& file_system,
                                 const std::string& folder, Group& group,
                                 const EngineOptions& options);

/// together() for work that returns digests of the rank's own items of a plan, by rising position.
/// Returns those of all items; `owners` has the rank of each.
std::vector<Digest> digests_together(Group& group, const std::vector<uint32_t>& owners,
                                     const std::function<std::vector<Digest>()>& work);

}  // namespace ferry
