// Connections that break while the ranks at both ends live, and those that end because ranks do.
#include <dirent.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <thread>

#include "tests/group/meshes.h"
#include "tests/group/ranks.h"

namespace ferry::test {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr TcpMesh::Lane kLane{0, 0};

void send(TcpMesh& mesh, int to, const std::string& text) {
  mesh.send(to, kLane, 0, std::as_bytes(std::span(text)));
}

int port_of_address(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

enum class Connection { data, lifeline };

// Ends all connections of a kind as a network does: no rank asks for it. Lifelines are those of the
// port where the ranks met.
void cut(Connection kind, int meeting_port) {
  DIR* const folder = ::opendir("/proc/self/fd");
  ASSERT_NE(folder, nullptr);
  std::vector<int> descriptors;
  while (const dirent* entry = ::readdir(folder)) descriptors.push_back(std::atoi(entry->d_name));
  ::closedir(folder);
  for (const int descriptor : descriptors) {
    sockaddr_storage own{}, other{};
    socklen_t own_length = sizeof own, other_length = sizeof other;
    if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&own), &own_length) != 0) continue;
    if (::getpeername(descriptor, reinterpret_cast<sockaddr*>(&other), &other_length) != 0)
      continue;
    const bool is_lifeline =
        port_of_address(own) == meeting_port || port_of_address(other) == meeting_port;
    if (is_lifeline == (kind == Connection::lifeline)) ::shutdown(descriptor, SHUT_RDWR);
  }
}

// Ranks of which 1 has a connection to 0.
std::vector<std::shared_ptr<TcpMesh>> connected(int port, int size) {
  auto meshes = meshes_at(port, size);
  send(*meshes[1], 0, "one");
  EXPECT_EQ(meshes[0]->receive(1, kLane).bytes, "one");
  return meshes;
}

// What each rank throws, all of which conclude then; those that wait for longer than `patience` are
// warned.
std::vector<std::string> problems(const std::vector<std::shared_ptr<TcpMesh>>& meshes,
                                  std::chrono::seconds patience,
                                  const std::function<void(TcpMesh&)>& work) {
  std::vector<std::string> texts(meshes.size());
  std::atomic<size_t> done = 0;
  std::vector<std::jthread> threads;
  for (size_t rank = 0; rank < meshes.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        work(*meshes[rank]);
      } catch (const Error& error) {
        texts[rank] = text_of(error);
      }
      ++done;
      meshes[rank]->conclude(std::chrono::seconds(5));
    });
  }
  const auto deadline = TcpClock::now() + patience;
  while (done < meshes.size() && TcpClock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (done < meshes.size()) meshes[0]->abort(Error(ErrorKind::internal, "ranks wait for ever"));
  threads.clear();
  return texts;
}

// Also where nothing is sent any more, as what was sent may have been on its way.
TEST(TcpBreak, IsHeardByAllRanks) {
  const int port = free_port();
  const auto meshes = connected(port, 3);
  cut(Connection::data, port);
  const auto texts = problems(meshes, std::chrono::seconds(20), [](TcpMesh& mesh) {
    mesh.receive((mesh.rank() + 1) % mesh.size(), kLane);
  });
  EXPECT_THAT(texts, Each(HasSubstr("io: rank 0: the connection from rank 1 to rank 0 broke: ")));
}

TEST(TcpBreak, IsHeardByAllRanksWhereOneSendsOn) {
  const int port = free_port();
  const auto meshes = connected(port, 3);
  cut(Connection::data, port);
  const auto texts = problems(meshes, std::chrono::seconds(20), [](TcpMesh& mesh) {
    while (mesh.rank() == 1) send(mesh, 0, "two");
    mesh.receive((mesh.rank() + 1) % mesh.size(), kLane);
  });
  EXPECT_THAT(texts, Each(HasSubstr("the connection from rank 1 to rank 0 broke: ")));
}

// The end of a process closes all its connections, but its lifeline says more.
TEST(TcpBreak, OfARankThatDiedIsItsDeath) {
  const int port = free_port();
  const auto meshes = connected(port, 2);
  cut(Connection::data, port);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  cut(Connection::lifeline, port);
  const auto texts = problems(meshes, std::chrono::seconds(20),
                              [](TcpMesh& mesh) { mesh.receive(1 - mesh.rank(), kLane); });
  EXPECT_THAT(texts[0], HasSubstr("rank 1: has ended without a message"));
  EXPECT_THAT(texts[1], HasSubstr("rank 0: has ended without a message"));
}

// Whoever is done keeps its connections until all are; then each closes them when it likes.
TEST(TcpBreak, IsNoneWhereRanksAreDoneAtDifferentTimes) {
  const int port = free_port();
  auto meshes = meshes_at(port, 3);
  std::vector<std::jthread> threads;
  for (auto& mesh : meshes) {
    threads.emplace_back([&mesh] {
      const int rank = mesh->rank();
      for (int to = 0; to < 3; ++to) {
        if (to != rank) send(*mesh, to, "one");
      }
      for (int from = 0; from < 3; ++from) {
        if (from == rank) continue;
        EXPECT_EQ(mesh->receive(from, kLane).bytes, "one");
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(300 * rank));
      EXPECT_TRUE(mesh->conclude(std::chrono::seconds(20)));
      EXPECT_FALSE(mesh->failure());
      mesh.reset();
    });
  }
}

// It needs nothing from there any more.
TEST(TcpBreak, IsNoneForARankThatIsDone) {
  const int port = free_port();
  const auto meshes = connected(port, 2);
  std::jthread first([&] { EXPECT_TRUE(meshes[0]->conclude(std::chrono::seconds(20))); });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  cut(Connection::data, port);
  std::this_thread::sleep_for(std::chrono::seconds(4));
  EXPECT_FALSE(meshes[0]->failure());
  EXPECT_TRUE(meshes[1]->conclude(std::chrono::seconds(20)));
  EXPECT_FALSE(meshes[1]->failure());
}

}  // namespace
}  // namespace ferry::test
