// Ranks that are processes, for tests: their messages are files in a folder.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "ckpt/group/group.h"
#include "trainer/communicator/links.h"

namespace ferry::test {

/// `folder` is there, and empty when the first rank begins. A rank that ended is noticed by others:
/// they throw Error(cancelled) with its number.
std::pair<std::shared_ptr<Group>, std::shared_ptr<Links>> file_ranks(const std::string& folder,
                                                                     int rank, int size);

}  // namespace ferry::test
