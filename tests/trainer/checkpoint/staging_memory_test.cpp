// How much memory of a host the copies of saves may take, and what is logged about it.
#include "trainer/checkpoint/staging_memory.h"

#include <fstream>

#include "tests/trainer/language/runs.h"
#include "trainer/arguments/complete.h"
#include "trainer/language/memory_plan.h"

namespace ferry::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr uint64_t kGiB = uint64_t{1} << 30;

// A machine's files, below a folder.
class Machine {
 public:
  void put(const std::string& path, const std::string& content) const {
    const fs::path file = root() + path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << content;
  }
  std::string root() const { return scratch_.path("root"); }

 private:
  const Scratch scratch_;
};

TEST(HostMemory, IsWhatTheKernelAndTheGroupsLeave) {
  const Machine machine;
  EXPECT_EQ(available_host_memory(machine.root()), UINT64_MAX);
  machine.put("/proc/meminfo", "MemTotal:       32 kB\nMemAvailable:   16 kB\n");
  EXPECT_EQ(available_host_memory(machine.root()), 16384u);
  machine.put("/proc/self/cgroup", "0::/job/step\n");
  machine.put("/sys/fs/cgroup/job/step/memory.max", "max\n");
  machine.put("/sys/fs/cgroup/job/step/memory.current", "100\n");
  EXPECT_EQ(available_host_memory(machine.root()), 16384u);
  machine.put("/sys/fs/cgroup/job/memory.max", "9000\n");
  machine.put("/sys/fs/cgroup/job/memory.current", "8000\n");
  EXPECT_EQ(available_host_memory(machine.root()), 1000u);
  machine.put("/sys/fs/cgroup/job/memory.stat", "anon 5000\ninactive_file 3000\n");
  EXPECT_EQ(available_host_memory(machine.root()), 4000u);
  machine.put("/sys/fs/cgroup/job/memory.current", "90000\n");
  EXPECT_EQ(available_host_memory(machine.root()), 0u);
}

TEST(HostMemory, IsWhatAContainerLeaves) {
  const Machine machine;
  machine.put("/proc/meminfo", "MemAvailable: 1000000 kB\n");
  machine.put("/proc/self/cgroup", "0::/\n");
  machine.put("/sys/fs/cgroup/memory.max", "7000\n");
  machine.put("/sys/fs/cgroup/memory.current", "1000\n");
  EXPECT_EQ(available_host_memory(machine.root()), 6000u);
}

TEST(HostMemory, IsWhatGroupsOfTheFirstVersionLeave) {
  const Machine machine;
  machine.put("/proc/meminfo", "MemAvailable: 1000000 kB\n");
  machine.put("/proc/self/cgroup", "9:cpu,cpuacct:/a\n4:memory:/job\n0::/elsewhere\n");
  machine.put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "5000\n");
  machine.put("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "4000\n");
  machine.put("/sys/fs/cgroup/memory/job/memory.stat", "total_inactive_file 500\n");
  EXPECT_EQ(available_host_memory(machine.root()), 1500u);
}

std::vector<StagingRoom> rooms(const std::vector<uint64_t>& requested, std::optional<uint64_t> most,
                               uint64_t available) {
  const auto groups = thread_groups(static_cast<int>(requested.size()));
  std::vector<StagingRoom> rooms(requested.size());
  std::vector<std::jthread> threads;
  for (size_t rank = 0; rank < requested.size(); ++rank) {
    threads.emplace_back(
        [&, rank] { rooms[rank] = staging_room(*groups[rank], requested[rank], most, available); });
  }
  threads.clear();
  return rooms;
}

TEST(StagingRoom, IsSharedByWhatRanksWant) {
  const auto enough = rooms({3 * kGiB, kGiB}, {}, 5 * kGiB);
  EXPECT_EQ(enough[0].bytes, 3 * kGiB);
  EXPECT_EQ(enough[1].bytes, kGiB);
  EXPECT_EQ(enough[0].ranks_in_pieces, 0);
  EXPECT_EQ(staging_text(enough[1]),
            "staging: saves take up to 3.000 GiB of host memory per rank\n");
  const auto short_of_it = rooms({3 * kGiB, kGiB}, {}, 2 * kGiB);
  EXPECT_EQ(short_of_it[0].bytes, for_staging(2 * kGiB) * 3 / 4);
  EXPECT_EQ(short_of_it[1].bytes, for_staging(2 * kGiB) / 4);
  EXPECT_THAT(staging_text(short_of_it[0]),
              HasSubstr("a host's memory allows less, from 0.438 GiB per rank, on 2 ranks: their "
                        "saves go in pieces, and a step waits"));
}

TEST(StagingRoom, IsBoundedByTheArguments) {
  const auto bounded = rooms({3 * kGiB, kGiB}, 2 * kGiB, UINT64_MAX);
  EXPECT_EQ(bounded[0].bytes, 2 * kGiB);
  EXPECT_EQ(bounded[1].bytes, kGiB);
  EXPECT_EQ(bounded[1].ranks_in_pieces, 1);
  EXPECT_THAT(staging_text(bounded[0]),
              HasSubstr("--staging-memory allows less, from 2.000 GiB per rank, on 1 ranks"));
  // What the host has is the bound of all, whatever the arguments let each of them take.
  const auto both = rooms({3 * kGiB, 3 * kGiB}, 2 * kGiB, 4 * kGiB);
  EXPECT_EQ(both[0].bytes, for_staging(4 * kGiB) / 2);
  EXPECT_EQ(both[1].bytes, for_staging(4 * kGiB) / 2);
  EXPECT_EQ(staging_text(rooms({0}, {}, 0)[0]), "");
  EXPECT_EQ(rooms({kGiB}, {}, 0)[0].bytes, uint64_t{1} << 20);  // something to pass through
}

TEST(StagingPlan, MentionsPieces) {
  StagePlan stage;
  EXPECT_EQ(staging_plan_text({stage}, 2, 0), "");
  stage.copies = stage.staging = static_cast<int64_t>(3 * kGiB);
  stage.state.parameters = static_cast<int64_t>(kGiB);
  EXPECT_EQ(staging_plan_text({stage}, 2, 100 * kGiB),
            "staging: saves take up to 3.000 GiB of host memory per rank\n");
  EXPECT_EQ(stage.bytes(), static_cast<int64_t>(4 * kGiB));
  // Two ranks hold 2 GiB and want 6, and 7 of 8 GiB may be taken.
  EXPECT_THAT(
      staging_plan_text({stage}, 2, 8 * kGiB),
      HasSubstr(
          "this host has 5.000 GiB of the 6.000 GiB that 2 ranks on it need: saves go in pieces"));
  stage.is_on_device = true;
  EXPECT_EQ(stage.bytes(), static_cast<int64_t>(kGiB));
  EXPECT_THAT(staging_plan_text({stage}, 2, 8 * kGiB),
              AllOf(HasSubstr("3.000 GiB of host memory per rank in addition to the device's\n"),
                    Not(HasSubstr("in pieces"))));
  stage.staging = static_cast<int64_t>(kGiB);
  EXPECT_THAT(staging_plan_text({stage}, 2, UINT64_MAX),
              HasSubstr("--staging-memory allows 1.000 GiB: saves go in pieces"));
}

TEST(StagingMemory, IsASize) {
  TrainArguments arguments;
  EXPECT_EQ(staging_bytes(arguments), std::nullopt);
  arguments.staging_memory = "2GiB";
  EXPECT_EQ(staging_bytes(arguments), 2 * kGiB);
  for (const char* wrong : {"two", "1KiB", "-5GB"}) {
    arguments.staging_memory = wrong;
    try {
      staging_bytes(arguments);
      ADD_FAILURE() << wrong;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid);
      EXPECT_THAT(error.what(), AllOf(HasSubstr("--staging-memory: "), HasSubstr(wrong)));
    }
  }
}

}  // namespace
}  // namespace ferry::test
