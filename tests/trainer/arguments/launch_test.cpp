#include "trainer/arguments/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

Launch launch_in(const std::map<std::string, std::string>& variables) {
  return detect_launch([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

TEST(DetectLaunch, IsAloneWithoutALauncher) {
  EXPECT_TRUE(launch_in({}).is_alone());
  // Kubernetes counts hosts so.
  EXPECT_TRUE(launch_in({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}}).is_alone());
  // sbatch without srun, an interactive shell.
  EXPECT_TRUE(
      launch_in({{"SLURM_JOB_ID", "7"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}).is_alone());
}

TEST(DetectLaunch, IsAloneInAStepOfOneTask) {
  const Launch shell =
      launch_in({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_STEP_NODELIST", "a"}});
  EXPECT_EQ(shell.launcher, "Slurm");
  EXPECT_TRUE(shell.is_alone());
}

TEST(DetectLaunch, KnowsLaunchers) {
  const Launch torchrun = launch_in({{"RANK", "3"},
                                     {"WORLD_SIZE", "8"},
                                     {"LOCAL_RANK", "1"},
                                     {"LOCAL_WORLD_SIZE", "2"},
                                     {"MASTER_ADDR", "host7"},
                                     {"MASTER_PORT", "29500"}});
  EXPECT_EQ(torchrun.launcher, "torchrun");
  EXPECT_EQ(torchrun.rank, 3);
  EXPECT_EQ(torchrun.world_size, 8);
  EXPECT_EQ(torchrun.local_rank, 1);
  EXPECT_EQ(torchrun.local_world_size, 2);
  EXPECT_EQ(torchrun.coordinator, "host7:29500");
  EXPECT_EQ(launch_in({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}}).launcher,
            "Open MPI");
  EXPECT_EQ(launch_in({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}).launcher, "PMI");
}

TEST(DetectLaunch, FindsTheFirstHostOfASlurmStep) {
  std::map<std::string, std::string> step = {{"SLURM_PROCID", "5"},
                                             {"SLURM_NTASKS", "8"},
                                             {"SLURM_LOCALID", "1"},
                                             {"SLURM_JOB_ID", "4097"},
                                             {"SLURM_STEP_NODELIST", "node[03-05,9],other"}};
  EXPECT_EQ(launch_in(step).coordinator, "node03:61441");
  EXPECT_EQ(launch_in(step).rank, 5);
  step["SLURM_STEP_NODELIST"] = "a1,b[2-3]";
  EXPECT_EQ(launch_in(step).coordinator, "a1:61441");
}

TEST(DetectLaunch, RefusesContradictions) {
  std::map<std::string, std::string> both = {{"RANK", "1"},
                                             {"WORLD_SIZE", "2"},
                                             {"LOCAL_WORLD_SIZE", "2"},
                                             {"OMPI_COMM_WORLD_RANK", "0"},
                                             {"OMPI_COMM_WORLD_SIZE", "2"}};
  try {
    launch_in(both);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                testing::HasSubstr("torchrun says rank 1 of 2, Open MPI says rank 0"));
  }
  both["OMPI_COMM_WORLD_RANK"] = "1";
  EXPECT_EQ(launch_in(both).launcher, "torchrun");
  EXPECT_THROW(launch_in({{"PMI_RANK", "2"}, {"PMI_SIZE", "2"}}), Error);
  EXPECT_THROW(launch_in({{"PMI_RANK", "x"}, {"PMI_SIZE", "2"}}), Error);
  EXPECT_THROW(launch_in({{"PMI_RANK", "0"}, {"PMI_SIZE", "0"}}), Error);
  // One torchrun a host under srun.
  both = {{"RANK", "9"},         {"WORLD_SIZE", "16"},         {"LOCAL_WORLD_SIZE", "8"},
          {"SLURM_PROCID", "1"}, {"SLURM_STEP_NODELIST", "a"}, {"SLURM_NTASKS", "2"}};
  EXPECT_EQ(launch_in(both).rank, 9);
}

}  // namespace
}  // namespace ferry
