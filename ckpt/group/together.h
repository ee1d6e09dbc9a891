// Steps that the ranks of a group do together: all succeed, or all fail alike.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ckpt/base/digest.h"
#include "ckpt/group/group.h"

namespace ferry {

/// Runs `work` on each rank and returns everyone's result, by rank. Where any rank's throws, all
/// ranks throw the first one's Error, with "rank N: " before its message unless all have the same.
std::vector<std::string> together(Group& group, const std::function<std::string()>& work);

/// The same for work that returns digests of the rank's own items of a plan, by rising position.
/// Returns those of all items; `owners` has the rank of each.
std::vector<Digest> digests_together(Group& group, const std::vector<uint32_t>& owners,
                                     const std::function<std::vector<Digest>()>& work);

}  // namespace ferry
