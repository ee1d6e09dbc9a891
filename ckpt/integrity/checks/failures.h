// From checksums that do not hold to problems that people can read.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ckpt/core/catalog.h"
#include "ckpt/integrity/checks/byte_checks.h"
#include "ckpt/integrity/verify.h"

namespace ferry {

/// One problem for each place: a failed check is left out where another one inside its bytes failed
/// and locates the damage better. `files` are those that the checks count in, inside `folder`;
/// `stored`, if there is one, names the tensors in bytes that nothing else names.
std::vector<Problem> problems_of(const CheckList& list, std::span<const FailedCheck> failed,
                                 std::span<const FileInfo> files, const std::string& folder,
                                 const Catalog* stored);

}  // namespace ferry
