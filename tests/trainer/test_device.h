// What the ranks of tests compute with: the processor, or GPUs.
#pragma once

#include <memory>

#include "ckpt/group/group.h"
#include "trainer/loop/rank_setup.h"

namespace ferry::test {

/// The device of one rank of `group`, with one thread.
RankDevice test_device(const std::shared_ptr<Group>& group, std::shared_ptr<Links> links);

}  // namespace ferry::test
