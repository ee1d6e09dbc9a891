// Steps that the ranks of a group do together: all succeed, or all fail alike.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ckpt/group/group.h"

namespace ferry {

/// Runs `work` on each rank and returns everyone's result, by rank. Where any rank's throws, all
/// ranks throw the first one's Error, with "rank N: " before its message unless all have the same.
std::vector<std::string> together(Group& group, const std::function<std::string()>& work);

}  // namespace ferry
