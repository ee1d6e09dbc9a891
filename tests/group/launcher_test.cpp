#include "ckpt/group/mpi/launcher.h"

#include <gmock/gmock.h>

#include <map>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

using testing::HasSubstr;

using Variables = std::map<std::string, std::string>;

std::vector<Launcher> launchers_of(const Variables& variables) {
  return launchers([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

// The error of a group of so many processes in this environment; empty: none.
std::string problem(const Variables& variables, int group_size) {
  try {
    check_group_size(launchers_of(variables), group_size, "Do this");
    return {};
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
    return error.what();
  }
}

TEST(Launcher, NoneWhereAProgramIsStartedByHand) {
  EXPECT_FALSE(started_several(launchers_of({})));
  EXPECT_EQ(problem({}, 1), "");
}

TEST(Launcher, SaysHowManyItStarted) {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    const Variables four = {{variable, "4"}};
    EXPECT_TRUE(started_several(launchers_of(four))) << variable;
    EXPECT_EQ(problem(four, 4), "") << variable;
    EXPECT_THAT(problem(four, 1), HasSubstr(std::string("started 4 processes, as ") + variable));
    EXPECT_THAT(problem(four, 1), HasSubstr(". Do this. Where one alone is meant to run, unset "));
    EXPECT_FALSE(started_several(launchers_of({{variable, "1"}}))) << variable;
    for (const char* nonsense : {"", "many", "0", "-3", "99999999999999"}) {
      EXPECT_TRUE(launchers_of({{variable, nonsense}}).empty()) << variable << nonsense;
    }
  }
}

TEST(Launcher, ARankWithoutTheirNumberIsRefused) {
  const std::pair<const char*, const char*> kRanks[] = {
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
      {"PMI_RANK", "PMI_SIZE"},
      {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}};
  for (const auto& [rank, size] : kRanks) {
    try {
      launchers_of({{rank, "1"}});
      ADD_FAILURE() << rank;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid);
      EXPECT_THAT(error.what(), HasSubstr(std::string(rank) + "=1, but no " + size));
    }
    EXPECT_EQ(launchers_of({{rank, "1"}, {size, "2"}}).size(), 1U);
  }
}

// What sbatch and salloc set for a script that runs once, whatever was allocated.
TEST(Launcher, AnAllocationStartsNothing) {
  const Variables batch = {{"SLURM_JOB_ID", "77"},           {"SLURM_NTASKS", "64"},
                           {"SLURM_NPROCS", "64"},           {"SLURM_PROCID", "0"},
                           {"SLURM_LOCALID", "0"},           {"SLURM_JOB_NUM_NODES", "8"},
                           {"SLURM_TASKS_PER_NODE", "8(x8)"}};
  EXPECT_FALSE(started_several(launchers_of(batch)));
}

// mpirun starts its daemons by srun, and processes inherit what that says of the daemons.
TEST(Launcher, OneInsideAnotherIsNoMismatch) {
  const Variables daemons = {{"OMPI_COMM_WORLD_SIZE", "32"}, {"SLURM_STEP_NUM_TASKS", "3"}};
  EXPECT_EQ(problem(daemons, 32), "");
  EXPECT_THAT(problem(daemons, 1), HasSubstr("mpirun started 32"));
  EXPECT_EQ(problem({{"OMPI_COMM_WORLD_SIZE", "1"}, {"SLURM_STEP_NUM_TASKS", "3"}}, 1), "");
  EXPECT_EQ(problem({{"OMPI_COMM_WORLD_SIZE", "1"}, {"SLURM_STEP_NUM_TASKS", "3"}}, 3), "");
}

// Kubernetes' operators set WORLD_SIZE, too, for processes or for hosts.
TEST(Launcher, TorchrunSetsMoreThanItsSize) {
  const Variables torchrun = {{"WORLD_SIZE", "8"}, {"RANK", "3"}, {"LOCAL_WORLD_SIZE", "4"}};
  EXPECT_THAT(problem(torchrun, 1), HasSubstr("torchrun started 8 processes, as WORLD_SIZE says"));
  EXPECT_FALSE(started_several(launchers_of({{"WORLD_SIZE", "8"}, {"RANK", "3"}})));
  Variables inside = torchrun;
  inside["OMPI_COMM_WORLD_SIZE"] = "2";
  EXPECT_EQ(problem(inside, 2), "");
  inside["OMPI_COMM_WORLD_SIZE"] = "1";
  EXPECT_THAT(problem(inside, 1), HasSubstr("torchrun started 8 processes"));
}

TEST(Launcher, PmixSetsARankThatMustFit) {
  EXPECT_TRUE(started_several(launchers_of({{"PMIX_RANK", "0"}})));
  EXPECT_EQ(problem({{"PMIX_RANK", "0"}}, 1), "");
  EXPECT_EQ(problem({{"PMIX_RANK", "1"}}, 8), "");
  EXPECT_THAT(problem({{"PMIX_RANK", "1"}}, 1), HasSubstr("at least 2 processes"));
  EXPECT_THAT(problem({{"PMIX_RANK", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}}, 1),
              HasSubstr("srun started 4"));
}

}  // namespace
}  // namespace ferry
