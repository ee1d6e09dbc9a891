// Meshes of processes that meet by an address, each here of a thread of the test.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "ckpt/group/tcp/mesh.h"

namespace ferry::test {

/// A port that was free a moment ago.
inline int free_port() { return port_of(listen_on(0)); }

/// Meshes of ranks that have met at a port of this host.
inline std::vector<std::shared_ptr<TcpMesh>> meshes_at(int port, int size) {
  std::vector<std::shared_ptr<TcpMesh>> meshes(static_cast<size_t>(size));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      meshes[static_cast<size_t>(rank)] =
          std::make_shared<TcpMesh>(MeetingPlace{"localhost", port, rank, size, "a"});
    });
  }
  return meshes;
}

}  // namespace ferry::test
