// Meshes of processes that meet by an address, each here of a thread of the test.
#pragma once

#include <unistd.h>

#include <memory>
#include <thread>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/group/tcp/mesh.h"
#include "ckpt/group/tcp/socket.h"

namespace ferry::test {

/// A port that is free, and that no connection out of this machine takes before a test listens on
/// it: below those that Linux gives to them (from 32768 on), and another one in each process.
inline int free_port() {
  constexpr int kFirst = 12000, kProcesses = 500, kOfEach = 40;
  static int next = 0;
  for (;;) {
    const int port = kFirst + ::getpid() % kProcesses * kOfEach + next++ % kOfEach;
    try {
      listen_on(port);
      return port;
    } catch (const Error&) {  // somebody has it
      if (next > 10 * kOfEach) throw;
    }
  }
}

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
