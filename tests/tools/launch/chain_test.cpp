// How a chain of jobs goes on and ends, on this machine, with a program that stands in for the
// trainer: it saves a given iteration and ends with a given code.
#include "tests/tools/launch/launch_files.h"

namespace {

using namespace ferry::test;
using testing::HasSubstr;
using testing::Not;

struct LaunchChain : Launching {
  void SetUp() override {
    Launching::SetUp();
    stub_training();
    const Outcome written = ferry("launch local " + small("--set chain.requeue=true"));
    ASSERT_EQ(written.code, 0) << written.err;
  }
  Outcome run(const std::string& variables, const std::string& before = "") const {
    return shell(in_shell(before + "\nbash run/launch/run.sh", variables));
  }
  std::string stopped() const { return read(path("run/chain/stopped")); }
};

TEST_F(LaunchChain, EndsWhenTrainingIsFinished) {
  const Outcome outcome = run("TRAINS_TO=40");
  EXPECT_EQ(outcome.code, 0) << outcome.out;
  EXPECT_EQ(runs(), 1U);
  EXPECT_THAT(stopped(), HasSubstr("training is finished: iteration 40 of 40"));
  EXPECT_FALSE(std::filesystem::exists(path("run/chain/running")));
  EXPECT_FALSE(std::filesystem::is_empty(path("run/logs")));
}

TEST_F(LaunchChain, GoesOnAsLongAsThereAreNewCheckpoints) {
  stub(
      "trainer",
      "printf 'run\\n' >>\"$WORK/runs\"; mkdir -p \"$SAVES\"\n"
      "printf %s $((10 * $(wc -l <\"$WORK/runs\"))) >\"$SAVES/latest_checkpointed_iteration.txt\"\n"
      "[ $(wc -l <\"$WORK/runs\") -ge 4 ]");  // three that crash after a save
  const Outcome outcome = run("");
  EXPECT_EQ(outcome.code, 0) << outcome.out;
  EXPECT_EQ(runs(), 4U);
  EXPECT_THAT(stopped(), HasSubstr("training is finished"));
}

TEST_F(LaunchChain, ThreeFailuresInARowEndIt) {
  const Outcome outcome = run("EXIT_CODE=7");
  EXPECT_EQ(outcome.code, 7) << outcome.out;
  EXPECT_EQ(runs(), 3U);
  EXPECT_THAT(stopped(), HasSubstr("3 jobs in a row ended without a new checkpoint"));
}

TEST_F(LaunchChain, JobsThatEndWithoutAnErrorOrACheckpointEndItToo) {
  EXPECT_EQ(run("").code, 0);
  EXPECT_EQ(runs(), 3U);
}

TEST_F(LaunchChain, AWrongConfigurationEndsItAtOnce) {
  const Outcome outcome = run("EXIT_CODE=2");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(runs(), 1U);
  EXPECT_THAT(stopped(), HasSubstr("the configuration is wrong"));
}

TEST_F(LaunchChain, TheExitTriggerEndsItAndGoes) {
  stub("trainer", "touch \"$WORK/run/triggers/exit\"; printf 'run\\n' >>\"$WORK/runs\"");
  const Outcome outcome = run("");
  EXPECT_EQ(outcome.code, 0) << outcome.out;
  EXPECT_EQ(runs(), 1U);
  EXPECT_THAT(stopped(), HasSubstr("the exit trigger was found"));
  EXPECT_TRUE(std::filesystem::is_empty(path("run/triggers")));
}

TEST_F(LaunchChain, StaleTriggersAreRemoved) {
  const Outcome outcome = run("TRAINS_TO=40",
                              "mkdir -p run/triggers; touch -d '1 hour ago' run/triggers/exit "
                              "run/triggers/save");
  EXPECT_EQ(runs(), 1U) << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("exit is older than this chain, and is removed"));
  EXPECT_TRUE(std::filesystem::is_empty(path("run/triggers")));
}

TEST_F(LaunchChain, TwoAtOnceDoNotTrain) {
  const Outcome outcome =
      run("TRAINS_TO=40",
          "mkdir -p run/chain; sleep 60 & printf '%s 0\\n' $! >run/chain/running\n"
          "trap 'kill %1' EXIT");
  EXPECT_EQ(outcome.code, 75) << outcome.out;
  EXPECT_EQ(runs(), 0U);
  EXPECT_THAT(outcome.out, HasSubstr("of this experiment is running"));
}

// A job that was killed leaves its name in the chain.
TEST_F(LaunchChain, AJobThatWasKilledDoesNotBarTheNext) {
  const Outcome outcome =
      run("TRAINS_TO=40", "mkdir -p run/chain; printf '999999999 0\\n' >run/chain/running");
  EXPECT_EQ(outcome.code, 0) << outcome.out;
  EXPECT_EQ(runs(), 1U);
  EXPECT_THAT(outcome.out, HasSubstr("ended without a word"));
}

TEST_F(LaunchChain, SignalsEndTheJobAndTheChain) {
  stub("trainer",
       "printf 'run\\n' >>\"$WORK/runs\"\n"
       "trap 'printf 5 >\"$SAVES/latest_checkpointed_iteration.txt\"; exit 0' USR2\n"
       "touch \"$WORK/ready\"; for i in $(seq 600); do sleep 0.1; done; exit 9");
  const Outcome outcome =
      shell(in_shell("bash run/launch/run.sh & launch=$!\nuntil [ -e ready ]; do sleep 0.1; done\n"
                     "kill -TERM $launch; wait $launch"));
  EXPECT_EQ(outcome.code, 0) << outcome.out;
  EXPECT_EQ(runs(), 1U);
  EXPECT_THAT(outcome.out, HasSubstr("exit code 0; iteration 5 is saved"));
}

// A full disk, or a folder that may not be written.
TEST_F(LaunchChain, WhereNothingCanBeWrittenNothingTrains) {
  const Outcome outcome = run("", "rm -rf run/chain; touch run/chain");
  EXPECT_EQ(outcome.code, 74) << outcome.out;
  EXPECT_EQ(runs(), 0U);
  EXPECT_THAT(outcome.out, HasSubstr("is the disk full"));
}

TEST_F(LaunchChain, TheEnvironmentIsRecordedWithoutSecrets) {
  run("TRAINS_TO=40 MY_API_KEY=secret123 PLAIN=seen456");
  std::string record;
  for (const auto& job : std::filesystem::directory_iterator(path("run/debug"))) {
    record = read(job.path().string() + "/compute_environment.txt");
  }
  EXPECT_THAT(record, HasSubstr("PLAIN=seen456"));
  EXPECT_THAT(record, HasSubstr("MY_API_KEY=(hidden)"));
  EXPECT_THAT(record, Not(HasSubstr("secret123")));
  EXPECT_THAT(record, HasSubstr("--num-layers 2"));
}

TEST_F(LaunchChain, CodeIsCopiedOnceAndRunFromTheCopy) {
  stub("python", "printf '%s\\n' \"$1\" >>\"$WORK/script\"");
  std::filesystem::create_directories(path("code"));
  write(path("code/pretrain_gpt.py"), "first");
  const Outcome written = ferry(
      "launch local " + small("--set program.kind=megatron --set program.code=" + path("code") +
                              " --set program.python=" + path("bin/python") +
                              " --set program.back_up_code=true --set arguments.device=null"));
  ASSERT_EQ(written.code, 0) << written.err;
  EXPECT_THAT(read(path("run/launch/settings.sh")), HasSubstr("CUDA_DEVICE_MAX_CONNECTIONS=1\n"));
  run("");
  write(path("code/pretrain_gpt.py"), "second");
  run("");
  EXPECT_EQ(read(path("run/code/pretrain_gpt.py")), "first");
  EXPECT_THAT(read(path("script")), HasSubstr(path("run/code/pretrain_gpt.py")));
}

// The trainer itself: a job that ends by itself, one that a trigger has save, one that ends it.
TEST_F(Launching, ARealChainTrains) {
  const std::string line = "--preset one-machine --set folder=" + path("run") +
                           " --set arguments.train-iters=8 --set arguments.save-interval=4"
                           " --set arguments.log-interval=2 --set arguments.exit-interval=4";
  ASSERT_EQ(ferry("launch local " + line).code, 0);
  EXPECT_THAT(read(path("run/launch/settings.sh")), Not(HasSubstr("CUDA_DEVICE_MAX_CONNECTIONS")));
  const Outcome outcome = shell("mkdir run/triggers; bash run/launch/run.sh");
  EXPECT_EQ(outcome.code, 0) << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("training begins at iteration 4"));
  EXPECT_THAT(read(path("run/chain/stopped")), HasSubstr("training is finished: iteration 8 of 8"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("triggers/exit is there")));
  EXPECT_THAT(read(path("run/checkpoints/progress.txt")), HasSubstr("Starting job"));
  const Outcome triggered = shell(
      "rm -rf run/checkpoints; sed -i 's/^exec/touch \"$FOLDER\"\\/triggers\\/{save,exit}\\nexec/' "
      "run/launch/rank.sh; bash run/launch/run.sh");
  EXPECT_EQ(triggered.code, 0) << triggered.out;
  EXPECT_THAT(read(path("run/chain/stopped")), HasSubstr("the exit trigger was found"));
  EXPECT_THAT(read(path("run/checkpoints/latest_checkpointed_iteration.txt")), testing::Eq("2"));
}

}  // namespace
