// Scripts of a launch under a real shell, with programs that stand in for Slurm and the trainer.
#include "tests/tools/launch/launch_files.h"

namespace {

using namespace ferry::test;
using testing::HasSubstr;
using testing::Not;

// What breaks out of quotes where any are wrong.
const std::vector<std::string>& hostile_texts() {
  static const std::vector<std::string> texts{"two words",
                                              "it's",
                                              "\"quoted\"",
                                              "$(touch PWNED)",
                                              "`touch PWNED`",
                                              "a\nb\ntouch PWNED",
                                              "a;touch PWNED",
                                              "${HOME}",
                                              "\\",
                                              "\\n",
                                              "*",
                                              "~",
                                              "!x",
                                              "a'$(touch PWNED)'b",
                                              "|touch PWNED",
                                              " lead",
                                              "trail ",
                                              "tab\there",
                                              "#no comment",
                                              "é日本🙂",
                                              "&&",
                                              "' ; touch PWNED ; '"};
  return texts;
}

std::string in_json(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (c == '\n') {
      quoted += "\\n";
    } else if (c == '\t') {
      quoted += "\\t";
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::vector<std::string> between_zeros(const std::string& text) {
  std::vector<std::string> words;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\0', at);
    words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

struct LaunchScripts : Launching {
  // As YAML: hostile texts as values of arguments and of the environment.
  void write_hostile(const std::string& where) const {
    std::string yaml = "preset: one-machine\nfolder: " + in_json(where) +
                       "\nprogram: {ferry: " + in_json(path("bin/trainer")) +
                       "}\narguments:\n  data-args-path: null\n  wandb-exp-name: x\n";
    yaml += "  data-path: [";
    for (const std::string& text : hostile_texts()) yaml += in_json(text) + ", ";
    yaml += "end]\n  mock-data: null\n  split: 100,0,0\nenvironment:\n";
    int number = 0;
    for (const std::string& text : hostile_texts()) {
      yaml += "  HOSTILE_" + std::to_string(number++) + ": " + in_json(text) + "\n";
    }
    write(path("hostile.yaml"), yaml);
  }
};

TEST_F(LaunchScripts, EveryValueReachesTheProgramAsItIs) {
  stub("trainer",
       "shift\nprintf '%s\\0' \"$@\" >\"$WORK/words\"\n"
       "for i in $(seq 0 21); do v=HOSTILE_$i; printf '%s\\0' \"${!v}\"; done >\"$WORK/values\"\n");
  const std::string where = path("a b'c \"d\" $(touch PWNED) `x`;&*");
  write_hostile(where);
  ASSERT_EQ(hostile_texts().size(), 22U);
  const Outcome written = ferry("launch local " + path("hostile.yaml"));
  ASSERT_EQ(written.code, 0) << written.err;
  const Outcome ran =
      shell(in_shell("for f in a*/launch/*.sh; do bash -n \"$f\" || exit 9; done\n"
                     "bash a*/launch/run.sh"));
  EXPECT_NE(ran.code, 9);
  EXPECT_EQ(between_zeros(read(path("values"))), hostile_texts());
  const std::vector<std::string> words = between_zeros(read(path("words")));
  const auto first = std::find(words.begin(), words.end(), "--data-path");
  ASSERT_NE(first, words.end()) << ran.out;
  const size_t count = hostile_texts().size();
  ASSERT_GE(static_cast<size_t>(words.end() - first), count + 1);
  EXPECT_EQ(std::vector<std::string>(first + 1, first + 1 + static_cast<std::ptrdiff_t>(count)),
            hostile_texts());
  EXPECT_THAT(words, testing::Contains(where + "/checkpoints"));
  EXPECT_FALSE(std::filesystem::exists(path("PWNED")));
  EXPECT_FALSE(std::filesystem::exists("PWNED"));
}

TEST_F(LaunchScripts, AJobOfSlurmGetsTheSame) {
  stub_training();
  stub("scontrol", "echo node1; echo node2");
  stub("squeue", "");
  stub("scancel", "printf '%s\\n' \"$*\" >>\"$WORK/cancelled\"");
  stub("sbatch", "printf '%s\\n' \"$@\" >>\"$WORK/submitted\"; echo 8");
  stub("srun",
       "printf '%s\\n' \"$@\" >\"$WORK/srun\"\nwhile [ \"$1\" != bash ]; do shift; done\n"
       "for i in 0 1; do SLURM_PROCID=$i SLURM_LOCALID=0 SLURM_NTASKS=2 \"$@\" || exit; done");
  const Outcome written =
      ferry("launch slurm " + small("--set ranks.nodes=2 --set chain.requeue=true"));
  ASSERT_EQ(written.code, 0) << written.err;
  const Outcome ran =
      shell(in_shell("bash -n run/launch/job.sbatch && bash run/launch/job.sbatch",
                     "SLURM_JOB_ID=7 SLURM_JOB_NODELIST=node[1-2] SLURM_JOB_NUM_NODES=2 "
                     "TRAINS_TO=20"));
  EXPECT_EQ(ran.code, 0) << ran.out;
  EXPECT_EQ(runs(), 2U);
  EXPECT_THAT(read(path("srun")), HasSubstr("--wait=60"));
  EXPECT_THAT(read(path("submitted")), HasSubstr("--dependency=singleton"));
  EXPECT_THAT(ran.out, HasSubstr("(2 ranks, node1:29500)"));
  EXPECT_FALSE(std::filesystem::exists(path("cancelled"))) << ran.out;
  EXPECT_FALSE(std::filesystem::exists(path("run/chain/stopped")));
  EXPECT_FALSE(std::filesystem::exists(path("run/chain/running")));
}

TEST_F(LaunchScripts, HeadersSayWhatTheyCanAndRefuseTheRest) {
  const Outcome good =
      ferry("launch slurm --print " +
            small("--set 'slurm.options=[\"--comment=a b\"]' --set slurm.time=01:00:00 "
                  "--set ranks.gpus_per_node=4"));
  EXPECT_THAT(good.out, HasSubstr("#SBATCH \"--comment=a b\"\n"));
  EXPECT_THAT(good.out, HasSubstr("#SBATCH --time=01:00:00\n"));
  EXPECT_THAT(good.out, HasSubstr("#SBATCH --signal=USR2@600\n"));
  EXPECT_THAT(good.out, HasSubstr("#SBATCH --gpus-per-node=4\n"));
  const Outcome bad =
      ferry("launch slurm --print " + small("--set 'slurm.options=[\"--comment=a\\nb\"]'"));
  EXPECT_EQ(bad.code, 2);
  EXPECT_THAT(bad.err, HasSubstr("the header of a Slurm job cannot say"));
  EXPECT_EQ(ferry("launch slurm --print " + small("--set slurm.options=x")).code, 2);
}

TEST_F(LaunchScripts, ValuesOfHeadersAreChecked) {
  const auto printed = [&](const std::string& setting) {
    return ferry("launch slurm --print " + small("--set '" + setting + "'"));
  };
  for (const char* good :
       {"slurm.time=90", "slurm.time=90:00", "slurm.time=2-12", "slurm.time=2-12:30:00",
        "slurm.time=UNLIMITED", "slurm.memory=64G", "slurm.memory=500000", "slurm.memory=64GB",
        "slurm.account=a-1.b_2", "slurm.partition=normal,long", "slurm.constraint=[r1|r2]&gpu",
        "slurm.options=[--mem-per-cpu=2G]"}) {
    EXPECT_EQ(printed(good).code, 0) << good;
  }
  for (const char* bad :
       {"slurm.time=24h", "slurm.time=1:2:3:4", "slurm.time=-5", "slurm.time=tomorrow",
        "slurm.memory=64Gi", "slurm.memory=lots", "slurm.account=my account", "slurm.partition=-p",
        "slurm.constraint=[r1", "slurm.qos=a\"b", "slurm.options=[--time=x]",
        "slurm.options=[--nodes=3]", "slurm.srun_options=[x]"}) {
    const Outcome outcome = printed(bad);
    EXPECT_EQ(outcome.code, 2) << bad;
    const std::string setting = bad;
    EXPECT_THAT(outcome.err, HasSubstr("error: " + setting.substr(0, setting.find('='))));
  }
  EXPECT_THAT(printed("slurm.time=10").err, HasSubstr("each job saves and ends at once"));
}

// Not a shell's 127, and not scripts that nobody asked for.
TEST_F(LaunchScripts, WhatCannotBeSubmittedHereIsSaid) {
  const std::string launch = " launch slurm " + small("--submit") + " 2>&1";
  const Outcome none = shell("PATH=/nowhere " + std::string(FERRY_PROGRAM) + launch);
  EXPECT_EQ(none.code, 3);
  EXPECT_THAT(none.out, HasSubstr("--submit: there is no sbatch on this machine"));
  EXPECT_FALSE(std::filesystem::exists(path("run")));
  EXPECT_THAT(ferry("launch local " + small("--submit --set program.ferry=/none")).err,
              HasSubstr("--submit: there is no /none on this machine; program.ferry names it"));
  // Whoever starts the script itself hears it, too.
  ASSERT_EQ(ferry("launch slurm " + small("")).code, 0);
  const Outcome script = shell("mkdir bin; ln -s $(command -v dirname) bin; PATH=$PWD/bin " +
                               std::string("$(command -v bash) run/launch/submit.sh"));
  EXPECT_EQ(script.code, 69) << script.out;
  EXPECT_THAT(script.out, HasSubstr("there is no sbatch here"));
}

TEST_F(LaunchScripts, ContainersAndDebuggingChangeTheCommand) {
  stub_training();
  stub("apptainer", "printf '%s\\n' \"$@\" >\"$WORK/apptainer\"");
  const Outcome written =
      ferry("launch local " + small("--set container.kind=apptainer --set container.image=/i.sif "
                                    "--set container.mounts=[/data:/data] --set debug.nccl=true"));
  ASSERT_EQ(written.code, 0) << written.err;
  shell(in_shell("bash run/launch/run.sh"));
  const std::string words = read(path("apptainer"));
  EXPECT_THAT(words, HasSubstr("exec\n--bind=/data:/data\n--bind=" + path("run") + ":"));
  EXPECT_THAT(words, HasSubstr("/i.sif\n" + path("bin/trainer") + "\ntrain\n--num-layers\n"));
  const Outcome pyxis = ferry("launch slurm --print " +
                              small("--set container.kind=pyxis --set container.image=/i.sqsh"));
  EXPECT_THAT(pyxis.out, HasSubstr("--container-image=/i.sqsh"));
  EXPECT_EQ(ferry("launch local --print " +
                  small("--set container.kind=pyxis --set container.image=/i.sqsh"))
                .code,
            2);
}

}  // namespace
