// From checksums that do not hold to problems that people can read.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ckpt/core/catalog.h"
#include "ckpt/integrity/checks/check_list.h"
#include "ckpt/integrity/problem.h"

namespace ferry {

/// One problem for each place: a check that failed is left out where another one inside its bytes
/// failed and tells the place better. `files` are those that the checks count in, inside `folder`;
/// `stored`, if there is one, tells which tensors lie in bytes of which nothing else does.
std::vector<Problem> problems_of(const CheckList& list, std::span<const FailedCheck> failed,
                                 std::span<const FileInfo> files, const std::string& folder,
                                 const Catalog* stored);

}  // namespace ferry
