// Links between processes that met by an address.
#pragma once

#include <memory>

#include "ckpt/group/group.h"
#include "ckpt/group/tcp/mesh.h"
#include "trainer/communicator/links.h"

namespace ferry {

/// Over the mesh, of which `group` is a group of all ranks. An offer is on its way, and its bytes
/// are free, when offer() returns.
std::shared_ptr<Links> tcp_links(std::shared_ptr<TcpMesh> mesh, std::shared_ptr<Group> group);

}  // namespace ferry
