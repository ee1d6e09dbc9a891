// Processes that meet by an address: here threads, each with a mesh of its own.
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
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

// Whoever tries to reach a rank hears meanwhile that the run has failed.
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

// A name server that does not answer takes its time.
TEST(WaitReports, NobodyWaitsForTheHint) {
  std::mutex mutex;
  std::vector<std::string> lines;
  const auto begin = TcpClock::now();
  {
    WaitReports reports(
        [&](const std::string& line) {
          const std::lock_guard lock(mutex);
          lines.push_back(line);
        },
        "rank 0 of 2",
        [] {
          std::this_thread::sleep_for(std::chrono::seconds(4));
          return std::string(" (a doubt)");
        });
    reports.set("for rank 1");
    std::this_thread::sleep_for(std::chrono::milliseconds(1900));
  }
  EXPECT_LT(TcpClock::now() - begin, std::chrono::seconds(3));
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_THAT(lines[0], testing::EndsWith("for rank 1"));
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

// What a rank says in two seconds of waiting for those that do not come.
std::string said_in_two_seconds(const MeetingPlace& place) {
  std::mutex mutex;
  std::string said;
  try {
    const TcpMesh mesh(place, std::chrono::seconds(2), [&](const std::string& line) {
      const std::lock_guard lock(mutex);
      said += line + "\n";
    });
    ADD_FAILURE() << "met";
  } catch (const Error&) {
  }
  return said;
}

TEST(TcpMeeting, WhoWaitsSaysForWhomAndSinceWhen) {
  const int port = free_port();
  EXPECT_THAT(said_in_two_seconds({"localhost", port, 0, 3, ""}),
              testing::ContainsRegex("rank 0 of 3 has waited since [0-9:]+ \\([12] s\\) at "
                                     "localhost:[0-9]+ for ranks 1, 2, which have not come"));
  EXPECT_THAT(said_in_two_seconds({"localhost", port, 1, 3, ""}),
              testing::ContainsRegex("rank 1 of 3 .* for rank 0 at localhost:.*: nobody listens"));
  // A name that nobody has: of rank 0, which listens whatever its name is, a doubt.
  const std::string nobody = "nobody.invalid";
  EXPECT_THAT(said_in_two_seconds({nobody, port, 1, 3, ""}),
              HasSubstr("its name cannot be resolved: "));
  EXPECT_THAT(said_in_two_seconds({nobody, port, 0, 3, ""}),
              HasSubstr("(MASTER_ADDR nobody.invalid: its name cannot be resolved: "));
}

TEST(TcpMeeting, WhoTurnedARankAwaySaysSo) {
  const int port = free_port();
  std::thread other([&] {
    EXPECT_ANY_THROW(TcpMesh({"localhost", port, 1, 3, ""}, std::chrono::seconds(5)));
  });
  EXPECT_THAT(said_in_two_seconds({"localhost", port, 0, 2, ""}),
              HasSubstr("for rank 1, which has not come (one was turned away: WORLD_SIZE is 3 on "
                        "rank 1, and 2 on rank 0)"));
  other.join();
}

// One that is stopped keeps its connections, and all would stand still without a word.
TEST(TcpMesh, SaysWhichRankSendsNothing) {
  const int port = free_port();
  std::mutex mutex;
  std::string said;
  const auto say = [&](const std::string& line) {
    const std::lock_guard lock(mutex);
    said += line + "\n";
  };
  const TcpMesh::Lane lane{7, 7};
  std::thread other([&] {
    TcpMesh mesh({"localhost", port, 1, 2, ""}, std::chrono::seconds(20));
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    mesh.send(0, lane, 1, {});
    mesh.conclude(std::chrono::seconds(5));
  });
  {
    TcpMesh mesh({"localhost", port, 0, 2, ""}, std::chrono::seconds(20), say,
                 std::chrono::milliseconds(100));
    EXPECT_EQ(mesh.receive(1, lane).label, 1U);
    mesh.conclude(std::chrono::seconds(5));
  }
  other.join();
  EXPECT_THAT(said, HasSubstr("rank 0 of 2 has waited for 0 s for rank 1, which is connected and "
                              "sends nothing"));
  EXPECT_LE(std::ranges::count(said, '\n'), 3);  // after 100, 200, 400 ms
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

TEST(TcpMeeting, RanksThatMeetAtOnceSayNothing) {
  const int port = free_port();
  std::atomic<int> lines = 0;
  const auto meet_as = [&](int rank) {
    const TcpMesh mesh({"localhost", port, rank, 2, ""}, std::chrono::seconds(20),
                       [&](const std::string&) { ++lines; });
  };
  std::thread other([&] { meet_as(1); });
  meet_as(0);
  other.join();
  EXPECT_EQ(lines, 0);
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

std::optional<MeetingPlace> place_of(const std::map<std::string, std::string>& variables) {
  return meeting_place([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

// Each process would train the whole run by itself.
TEST(TcpMeeting, APartOfTheVariablesIsRefusedNamingTheRest) {
  const std::pair<const char*, const char*> all[] = {
      {"MASTER_ADDR", "h"}, {"MASTER_PORT", "6000"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}};
  for (unsigned chosen = 0; chosen < 15; ++chosen) {
    std::map<std::string, std::string> variables;
    for (size_t i = 0; i < 4; ++i) {
      if (chosen >> i & 1U) variables.insert(all[i]);
    }
    const bool is_none = variables.empty();
    // One that a script left empty, and what torchrun sets besides.
    variables[all[0].first];
    if (is_none) {
      EXPECT_FALSE(place_of(variables));
      variables["LOCAL_RANK"] = "0";
    }
    try {
      place_of(variables);
      ADD_FAILURE() << chosen;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid);
      const std::string text = text_of(error);
      const std::string missing = text.substr(text.find("but not"), text.find(": ranks"));
      for (size_t i = 0; i < 4; ++i) {
        const bool is_given = chosen >> i & 1U;
        EXPECT_EQ(text.find(std::string(" ") + all[i].first + "=") != std::string::npos, is_given);
        if (!is_given) {
          EXPECT_THAT(missing, HasSubstr(all[i].first));
        }
      }
    }
  }
}

TEST(TcpMeeting, AnMpiLauncherOfOneProcessLeavesTheVariablesAsTheyAre) {
  std::map<std::string, std::string> variables = {
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "6000"}};
  variables["PMIX_RANK"] = "0";
  EXPECT_FALSE(place_of(variables));  // of nobody knows how many
  variables["OMPI_COMM_WORLD_SIZE"] = "1";
  EXPECT_TRUE(place_of(variables));
  variables.erase("RANK");
  EXPECT_ANY_THROW(place_of(variables));
  variables["OMPI_COMM_WORLD_SIZE"] = "2";
  EXPECT_FALSE(place_of(variables));
}

// Its agent may have taken the port that it names.
TEST(TcpMeeting, TorchrunsRanksMeetDespiteItsAgent) {
  std::map<std::string, std::string> variables = {{"MASTER_ADDR", "h"},
                                                  {"MASTER_PORT", "6000"},
                                                  {"RANK", "1"},
                                                  {"WORLD_SIZE", "4"},
                                                  {"LOCAL_WORLD_SIZE", "4"},
                                                  {"TORCHELASTIC_USE_AGENT_STORE", "False"},
                                                  {"TORCHELASTIC_RUN_ID", "none"},
                                                  {"SLURM_STEP_ID", "3"}};
  ASSERT_TRUE(place_of(variables));
  EXPECT_EQ(place_of(variables)->port, 6000);
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  const auto first = place_of(variables);
  EXPECT_EQ(first->port, 6001);
  // Agents may be steps of their own, each under a launcher of one process.
  variables["SLURM_STEP_ID"] = "4";
  variables["PMI_SIZE"] = "1";
  EXPECT_EQ(place_of(variables)->job, first->job);
  variables["MASTER_PORT"] = "65535";
  EXPECT_EQ(place_of(variables)->port, 65534);
}

TEST(TcpMeeting, TheEnvironmentSaysWhere) {
  std::map<std::string, std::string> variables;
  const auto place = [&] { return place_of(variables); };
  EXPECT_FALSE(place());
  variables = {{"MASTER_ADDR", "h"}, {"MASTER_PORT", "6000"}, {"RANK", "1"}, {"WORLD_SIZE", "4"}};
  ASSERT_TRUE(place());
  EXPECT_EQ(place()->host, "h");
  EXPECT_EQ(place()->rank, 1);
  EXPECT_EQ(place()->size, 4);
  EXPECT_EQ(place()->port, 6000);
  variables["OMPI_COMM_WORLD_SIZE"] = "4";
  EXPECT_FALSE(place());
  variables.erase("OMPI_COMM_WORLD_SIZE");
  variables["WORLD_SIZE"] = "1";
  EXPECT_ANY_THROW(place());  // of which rank 1 is none
  variables["RANK"] = "0";
  EXPECT_FALSE(place());
  variables["WORLD_SIZE"] = "2";
  for (const char* wrong : {"h:6000", "tcp://h", "10.0.0.1 172.17.0.1", "h\n", "a,b"}) {
    variables["MASTER_ADDR"] = wrong;
    EXPECT_ANY_THROW(place()) << wrong;
  }
  variables["MASTER_ADDR"] = "fe80::1";
  EXPECT_EQ(place()->host, "fe80::1");
  variables["MASTER_ADDR"] = "[::1]";
  EXPECT_EQ(place()->host, "::1");
  for (const char* wrong : {"-1", "x", "99999999999", "3.0"}) {
    variables["WORLD_SIZE"] = wrong;
    EXPECT_ANY_THROW(place()) << wrong;
  }
}

}  // namespace
