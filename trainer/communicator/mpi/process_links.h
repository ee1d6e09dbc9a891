// Links between the processes of a launch.
#pragma once

#include <memory>

#include "ckpt/group/group.h"
#include "trainer/communicator/links.h"

namespace ferry {

/// Links of the processes of `group`, which is process_group(). All must call it. Destroy before
/// end_process_group().
std::shared_ptr<Links> process_links(const std::shared_ptr<Group>& group);

}  // namespace ferry
