// Links between the processes of a launch.
#pragma once

#include <memory>

#include "ckpt/group/group.h"
#include "trainer/communicator/links.h"

namespace ferry {

/// Of the processes of `group`, which is process_group(). All call it; goes before
/// end_process_group().
std::shared_ptr<Links> process_links(const std::shared_ptr<Group>& group);

}  // namespace ferry
