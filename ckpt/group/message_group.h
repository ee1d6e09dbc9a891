// Groups whose operations are trees of messages, whatever carries these.
#pragma once

#include <memory>

#include "ckpt/group/group.h"
#include "ckpt/group/transport.h"

namespace ferry {

/// The first group of the family whose messages `transport` carries.
std::shared_ptr<Group> message_group(std::shared_ptr<Transport> transport);

}  // namespace ferry
