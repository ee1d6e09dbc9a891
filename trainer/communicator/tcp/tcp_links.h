// Links between processes that connected over TCP.
#pragma once

#include <memory>

#include "ckpt/group/group.h"
#include "ckpt/group/tcp/mesh.h"
#include "trainer/communicator/links.h"

namespace ferry {

/// `group` is the group of all ranks of the mesh. When offer() returns, the bytes have been sent
/// and may be reused.
std::shared_ptr<Links> tcp_links(std::shared_ptr<TcpMesh> mesh, std::shared_ptr<Group> group);

}  // namespace ferry
