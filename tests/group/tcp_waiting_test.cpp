// What ranks that wait for others say: for whom, since when, and why.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "ckpt/group/tcp/mesh.h"
#include "tests/group/meshes.h"
#include "tests/group/ranks.h"

namespace {

using namespace ferry;
using namespace ferry::test;
using testing::HasSubstr;

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

}  // namespace
