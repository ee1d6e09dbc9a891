// Processes that meet by an address: here threads, each with a mesh of its own.
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <mutex>
#include <thread>

#include "ckpt/group/group.h"
#include "ckpt/group/tcp/mesh.h"
#include "ckpt/group/wire.h"
#include "tests/group/meshes.h"
#include "tests/group/ranks.h"

namespace {

using namespace ferry;
using namespace ferry::test;
using testing::HasSubstr;

// As threads of a test, which conclude as processes do.
std::vector<std::optional<Error>> on_meshes(int size, const std::function<void(Group&)>& work) {
  const auto meshes = meshes_at(free_port(), size);
  std::vector<std::shared_ptr<Group>> groups;
  for (const auto& mesh : meshes) groups.push_back(message_group(tcp_transport(mesh)));
  auto errors = on_ranks(groups, work);
  groups.clear();
  std::vector<std::jthread> threads;
  for (const auto& mesh : meshes) {
    threads.emplace_back([mesh] { EXPECT_TRUE(mesh->conclude(std::chrono::seconds(20))); });
  }
  return errors;
}

const std::vector<std::string>& none_of(size_t size) {
  static std::vector<std::string> texts;
  texts.assign(size, "");
  return texts;
}

TEST(TcpGroup, GivesEveryoneWhatTheOthersSay) {
  for (const int size : {2, 3, 5}) {
    const auto errors = on_meshes(size, [&](Group& group) {
      const std::string own = std::string(1000, 'a') + std::to_string(group.rank());
      const auto all = group.exchange(own);
      ASSERT_EQ(all.size(), static_cast<size_t>(size));
      EXPECT_EQ(all[1], std::string(1000, 'a') + "1");
      EXPECT_EQ(group.broadcast(group.rank() == 0 ? "order" : ""), "order");
      const auto half = group.split(group.rank() % 2, 0);
      EXPECT_EQ(half->exchange("x").size(), static_cast<size_t>(half->size()));
      group.barrier();
    });
    EXPECT_EQ(texts_of(errors), none_of(errors.size()));
  }
}

// More than the system keeps on the way: who sends first does not wait for the receiver to ask.
TEST(TcpGroup, LargeMessagesCross) {
  const auto errors = on_meshes(2, [&](Group& group) {
    const auto all =
        group.exchange(std::string(size_t{32} << 20, static_cast<char>('a' + group.rank())));
    EXPECT_EQ(all[1 - static_cast<size_t>(group.rank())].size(), size_t{32} << 20);
    EXPECT_EQ(all[0].back(), 'a');
    EXPECT_EQ(all[1].back(), 'b');
  });
  EXPECT_EQ(texts_of(errors), none_of(2));
}

TEST(TcpGroup, AnAbortIsHeardByAll) {
  for (const int failing : {0, 2}) {
    const auto errors = on_meshes(3, [&](Group& group) {
      if (group.rank() == failing) group.abort(Error(ErrorKind::corrupt, "its reason"));
      group.barrier();
    });
    for (const auto& error : errors) {
      EXPECT_THAT(text_of(error),
                  HasSubstr("corrupt: rank " + std::to_string(failing) + ": its reason"));
    }
  }
}

TEST(TcpMeeting, StrangersAndTwinsAreTurnedAway) {
  const int port = free_port();
  std::vector<std::string> answers(4);
  const auto come = [&](size_t number, MeetingPlace place) {
    try {
      const TcpMesh mesh(place, std::chrono::seconds(20));
      answers[number] = "met";
    } catch (const Error& error) {
      answers[number] = error.what();
    }
  };
  std::jthread host([&] { come(0, {"localhost", port, 0, 2, "a"}); });
  TcpSocket stranger =
      connect_to("localhost", port, TcpClock::now() + std::chrono::seconds(20)).socket;
  ASSERT_TRUE(stranger);
  const std::string knock(64, '\xff');
  stranger.write(std::as_bytes(std::span(knock)));
  come(1, {"localhost", port, 1, 2, "b"});
  come(2, {"localhost", port, 1, 3, "a"});
  come(3, {"localhost", port, 1, 2, "a"});
  host.join();
  EXPECT_THAT(answers[1], HasSubstr("another run listens at localhost"));
  EXPECT_THAT(answers[2], HasSubstr("WORLD_SIZE is 3 on rank 1, and 2 on rank 0"));
  EXPECT_EQ(answers[3], "met");
  EXPECT_EQ(answers[0], "met");
}

// What a rank of 3 says first.
TcpSocket come_as(int rank, int port) {
  const std::string text = Packer()
                               .number(0x3150435459524546)
                               .number(3)
                               .number(static_cast<uint64_t>(rank))
                               .number(1)
                               .text("")
                               .take();
  TcpSocket socket =
      connect_to("localhost", port, TcpClock::now() + std::chrono::seconds(20)).socket;
  const uint64_t length = text.size();
  socket.write(std::as_bytes(std::span(&length, 1)), std::as_bytes(std::span(text)));
  return socket;
}

// It may be started again, as Kubernetes does.
TEST(TcpMeeting, ARankThatEndsMeanwhileMayComeAgain) {
  const int port = free_port();
  std::mutex mutex;
  std::string said;
  const auto has_said = [&](const std::string& text) {
    const std::lock_guard lock(mutex);
    return said.find(text) != std::string::npos;
  };
  std::thread host([&] {
    TcpMesh mesh({"localhost", port, 0, 3, ""}, std::chrono::seconds(20),
                 [&](const std::string& line) {
                   const std::lock_guard lock(mutex);
                   said += line + "\n";
                 });
    mesh.conclude(std::chrono::seconds(5));
  });
  come_as(1, port);
  const auto deadline = TcpClock::now() + std::chrono::seconds(10);
  const std::string gone =
      "ranks 1, 2, which have not come (rank 1 connected, and has ended since)";
  while (!has_said(gone) && TcpClock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_TRUE(has_said(gone)) << said;
  std::vector<std::jthread> others;
  for (const int rank : {1, 2}) {
    others.emplace_back([=] {
      TcpMesh mesh({"localhost", port, rank, 3, ""}, std::chrono::seconds(20));
      mesh.conclude(std::chrono::seconds(5));
    });
  }
  host.join();
}

TEST(TcpMeeting, RankZeroMayListenBeforeAnyoneKnowsThePort) {
  TcpSocket door = listen_on(0);
  const int port = port_of(door);
  std::jthread guest([&] {
    TcpMesh mesh({"localhost", port, 1, 2, ""}, std::chrono::seconds(20));
    EXPECT_EQ(mesh.size(), 2);
  });
  TcpMesh host({"localhost", port, 0, 2, ""}, std::chrono::seconds(20), {},
               std::chrono::seconds(30), std::move(door));
  EXPECT_EQ(host.size(), 2);
}

// Whoever tries to reach a rank hears meanwhile that the run has failed.
TEST(TcpMesh, ARankThatCannotBeReachedIsNotTriedAfterAFailure) {
  const int port = free_port();
  std::string problem;
  const auto begin = TcpClock::now();
  std::jthread host([&] {
    TcpMesh mesh({"localhost", port, 0, 3, ""}, std::chrono::seconds(20));
    try {
      mesh.send(1, {7, 7}, 1, {});
    } catch (const Error& error) {
      problem = text_of(error);
    }
    mesh.conclude(std::chrono::seconds(1));
  });
  TcpSocket one = come_as(1, port), two = come_as(2, port);
  uint64_t length = 0;
  ASSERT_TRUE(one.read(std::as_writable_bytes(std::span(&length, 1))));  // all have met
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  two.close();
  host.join();
  EXPECT_THAT(problem, HasSubstr("rank 2: has ended without a message"));
  EXPECT_LT(TcpClock::now() - begin, std::chrono::seconds(15));
}

// Probes of a port connect and say nothing.
TEST(TcpMeeting, GuestsThatSayNothingKeepNobodyWaiting) {
  const int port = free_port();
  const auto begin = TcpClock::now();
  std::jthread host([&] { TcpMesh({"localhost", port, 0, 2, ""}, std::chrono::seconds(20)); });
  std::vector<TcpSocket> silent;
  for (int i = 0; i < 3; ++i) {
    silent.push_back(
        connect_to("localhost", port, TcpClock::now() + std::chrono::seconds(20)).socket);
  }
  TcpMesh({"localhost", port, 1, 2, ""}, std::chrono::seconds(20));
  host.join();
  EXPECT_LT(TcpClock::now() - begin, std::chrono::seconds(4));
}

// To a rank on another host, 127.0.0.1 is itself.
TEST(TcpMeeting, RanksOnTheFirstOnesHostHaveNoLoopbackAddressForOthers) {
  const int port = free_port();
  std::jthread host([&] { TcpMesh({"localhost", port, 0, 3, ""}, std::chrono::seconds(20)); });
  TcpSocket one = come_as(1, port), two = come_as(2, port);
  uint64_t length = 0;
  ASSERT_TRUE(one.read(std::as_writable_bytes(std::span(&length, 1))));
  std::string text(length, '\0');
  ASSERT_TRUE(one.read(std::as_writable_bytes(std::span(text))));
  Unpacker table(text);
  EXPECT_EQ(table.text(), "");
  table.number();
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(table.text(), "") << rank;
    table.number();
  }
}

// Else it would wait for ranks that it cannot let in.
TEST(TcpMeeting, ALimitOfOpenFilesIsReportedAtOnce) {
  const int port = free_port();
  std::string problem;
  std::thread host([&] {
    try {
      TcpMesh({"127.0.0.1", port, 0, 2, ""}, std::chrono::seconds(20));
    } catch (const Error& error) {
      problem = text_of(error);
    }
  });
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  connect_to("127.0.0.1", port, TcpClock::now() + std::chrono::seconds(20)).socket.close();
  const int guest = ::socket(AF_INET, SOCK_STREAM, 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const int next = ::dup(guest);
  ::close(next);
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  rlimit low = before;
  low.rlim_cur = static_cast<rlim_t>(next);
  ::setrlimit(RLIMIT_NOFILE, &low);
  EXPECT_EQ(::connect(guest, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  const auto begin = TcpClock::now();
  host.join();
  ::setrlimit(RLIMIT_NOFILE, &before);
  ::close(guest);
  EXPECT_LT(TcpClock::now() - begin, std::chrono::seconds(5));
  EXPECT_THAT(problem, HasSubstr("exhausted: a connection of another rank cannot be taken: Too "
                                 "many open files"));
}

TEST(TcpMeeting, WhoDoesNotComeIsNamed) {
  const int port = free_port();
  const auto problem = [&](int rank) -> std::string {
    try {
      const TcpMesh mesh({"localhost", port, rank, 3, ""}, std::chrono::seconds(0));
    } catch (const Error& error) {
      return text_of(error);
    }
    return "met";
  };
  EXPECT_THAT(problem(0),
              HasSubstr("ranks 1, 2 of the 3 that WORLD_SIZE counts have not come to localhost"));
  EXPECT_THAT(problem(1), HasSubstr("rank 0 cannot be reached at localhost"));
  EXPECT_THAT(problem(1), HasSubstr("nobody listens there"));
}

TEST(TcpMesh, ARankThatSendsNothingForTooLongEndsTheGroup) {
  const auto meshes = meshes_at(free_port(), 2);
  meshes[0]->limit_silence(std::chrono::milliseconds(50));
  try {
    message_group(tcp_transport(meshes[0]))->exchange("");
    ADD_FAILURE() << "rank 1 never came";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::exhausted);
    EXPECT_THAT(error.what(), HasSubstr("for rank 1, which is connected and sends nothing"));
  }
  const auto late = message_group(tcp_transport(meshes[1]));
  const auto exchange_twice = [&] {  // what rank 0 had sent before may still be received
    late->exchange("");
    late->exchange("");
  };
  EXPECT_THROW(exchange_twice(), Error);
  std::vector<std::jthread> threads;
  for (const auto& mesh : meshes) {
    threads.emplace_back([mesh] { mesh->conclude(std::chrono::seconds(20)); });
  }
}

TEST(TcpMeeting, APortThatIsTakenIsReported) {
  const TcpSocket taken = listen_on(0);
  try {
    const TcpMesh mesh({"localhost", port_of(taken), 0, 2, ""}, std::chrono::seconds(0));
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(text_of(error), HasSubstr("choose another MASTER_PORT"));
  }
}

}  // namespace
