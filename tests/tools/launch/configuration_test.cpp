// What a launch configuration may say, and what is refused.
#include "tests/tools/launch/launch_files.h"

namespace {

using namespace ferry::test;
using testing::HasSubstr;
using testing::Not;

struct LaunchConfigurations : Launching {
  // Of `launch slurm`, whose configuration file is `yaml`.
  Outcome launch(const std::string& yaml, const std::string& more = "--print-words") const {
    write(path("run.yaml"), "preset: one-machine\nfolder: " + path("run") + "\n" + yaml);
    return ferry("launch slurm " + path("run.yaml") + " " + more);
  }
  std::string refusal(const std::string& yaml) const {
    const Outcome outcome = launch(yaml);
    EXPECT_EQ(outcome.code, 2) << yaml << outcome.out;
    EXPECT_FALSE(std::filesystem::exists(path("run")));
    return outcome.err;
  }
};

TEST_F(LaunchConfigurations, LaterOnesReplaceKeyByKey) {
  const Outcome outcome = launch("arguments:\n  train_iters: 7\n  lr: 1.0e-3\n  swiglu: false\n",
                                 "--print-words --set arguments.train-iters=8");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("--train-iters\n8\n"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("--train-iters\n7\n")));
  EXPECT_THAT(outcome.out, Not(HasSubstr("--swiglu\n")));
  EXPECT_THAT(outcome.out, HasSubstr("--num-layers\n2\n"));  // the preset's
}

TEST_F(LaunchConfigurations, AddsWhatChainsNeedUnlessGiven) {
  const Outcome all = launch("");
  for (const char* name : {"--save\n", "--load\n", "--exit-signal-handler\n",
                           "--exit-signal\nSIGUSR2\n", "--trigger-path\n", "--tensorboard-dir\n"}) {
    EXPECT_THAT(all.out, HasSubstr(name));
  }
  const Outcome none = launch(
      "arguments: {save: null, exit-signal: null, tensorboard-dir: /t}\n"
      "chain: {triggers: false}\n");
  ASSERT_EQ(none.code, 0) << none.err;
  for (const char* name : {"--save\n", "--load\n", "--exit-signal\n", "--trigger-path\n"}) {
    EXPECT_THAT(none.out, Not(HasSubstr(name)));
  }
  EXPECT_THAT(none.out, HasSubstr("--tensorboard-dir\n/t\n"));
}

TEST_F(LaunchConfigurations, UnknownKeysAreRefusedWithTheNearest) {
  EXPECT_THAT(refusal("rnaks:\n  nodes: 2\n"), HasSubstr("rnaks is not a key of a launch"));
  EXPECT_THAT(refusal("ranks:\n  nods: 2\n"), HasSubstr("the nearest is ranks.nodes"));
  EXPECT_THAT(refusal("argumnts:\n  num-layers: 2\n"), HasSubstr("the nearest is arguments\n"));
  EXPECT_THAT(refusal("rnaks:\n  nodes: 2\n"), HasSubstr("the nearest is ranks\n"));
  EXPECT_THAT(refusal("preste: x\n"), HasSubstr("the nearest is preset\n"));
  EXPECT_THAT(refusal("partition: long\n"), HasSubstr("the nearest is slurm.partition"));
  EXPECT_THAT(refusal("arguments:\n  num-layer: 2\n"), HasSubstr("the nearest is --num-layers"));
}

TEST_F(LaunchConfigurations, KeysThatAreThereTwiceAreRefused) {
  const Outcome twice = launch("folder: /b\n");
  EXPECT_EQ(twice.code, 4);
  EXPECT_THAT(twice.err, HasSubstr("run.yaml, line 3: the key 'folder' is on line 2 already"));
  EXPECT_THAT(refusal("arguments: {train-iters: 2, train_iters: 3}\n"),
              HasSubstr("train-iters and train_iters are one argument; remove one of the two"));
}

TEST_F(LaunchConfigurations, ValuesOfAnotherKindAreRefused) {
  EXPECT_THAT(refusal("ranks:\n  nodes: many\n"),
              HasSubstr("ranks.nodes: must be a whole number from 1"));
  EXPECT_THAT(refusal("ranks:\n  nodes: 0\n"), HasSubstr("from 1 to 65536"));
  EXPECT_THAT(refusal("chain:\n  requeue: 3\n"), HasSubstr("chain.requeue: must be true or false"));
  EXPECT_THAT(refusal("chain:\n  exit_signal: SIGKILL\n"), HasSubstr("'SIGKILL' is none of"));
  EXPECT_THAT(refusal("ranks: 3\n"), HasSubstr("ranks is a section of keys"));
  EXPECT_THAT(refusal("environment: [A]\n"), HasSubstr("names with values"));
  EXPECT_THAT(refusal("environment: {\"A B\": 1}\n"),
              HasSubstr("'A B' is not a name of a variable"));
  EXPECT_THAT(refusal("name: a,b\n"), HasSubstr("'a,b' cannot name jobs"));
  EXPECT_THAT(refusal("name: \"a\\nb\"\n"), HasSubstr("cannot name jobs"));
  const Outcome folder_of_lines = launch("", "--print-words --set 'folder=/a\nb'");
  EXPECT_EQ(folder_of_lines.code, 2);
  EXPECT_THAT(folder_of_lines.err, HasSubstr("control characters"));
  EXPECT_THAT(refusal("program: {kind: megatron}\n"), HasSubstr("program.code"));
  const Outcome none = ferry("launch slurm --preset none --set folder=" + path("run"));
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.err, HasSubstr("there is no preset 'none'; there are "));
  const Outcome misspelt = ferry("launch slurm --preset one-machin --set folder=" + path("run"));
  EXPECT_EQ(misspelt.code, 2);
  EXPECT_THAT(misspelt.err, HasSubstr("there is no preset 'one-machin'; the nearest is "
                                      "one-machine; there are "));
}

TEST_F(LaunchConfigurations, ValuesAreTakenAsTheyAreWritten) {
  const auto variables = [&](const std::string& yaml, const std::string& more) {
    const Outcome outcome = launch(yaml, "--print " + more);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.out;
  };
  const std::string in_file = variables(
      "environment: {A: 1.10, B: 010, C: 1e3, D: 12345678901234567890123, E: \"1\"}\n", "");
  for (const char* line :
       {"A=1.10\n", "B=010\n", "C=1e3\n", "D=12345678901234567890123\n", "E=1\n"}) {
    EXPECT_THAT(in_file, HasSubstr(line));
  }
  const std::string set = variables(
      "", "--set environment.A=1.10 'environment.B=#x' environment.C=null 'environment.D=[a'");
  for (const char* line : {"A=1.10\n", "B='#x'\n", "C=null\n", "D='[a'\n"}) {
    EXPECT_THAT(set, HasSubstr(line));
  }
  const Outcome words = launch("", "--print-words --set arguments.lr=1.50e-3");
  EXPECT_THAT(words.out, HasSubstr("--lr\n1.50e-3\n"));
}

TEST_F(LaunchConfigurations, WhatCannotTrainIsRefusedBeforeAnythingIsWritten) {
  EXPECT_THAT(refusal("arguments: {tensor-model-parallel-size: 3}\nranks: {per_node: 3}\n"),
              HasSubstr("4 attention heads"));
  EXPECT_THAT(refusal("arguments: {pipeline-model-parallel-size: 2}\nranks: {per_node: 3}\n"),
              HasSubstr("3"));
  EXPECT_THAT(refusal("arguments: {global-batch-size: 5}\n"), HasSubstr("5"));
  EXPECT_EQ(launch("arguments: {use-megatron-fsdp: true}\n").code, 5);
}

TEST_F(LaunchConfigurations, WhatIsNoYamlIsCorrupt) {
  EXPECT_EQ(launch("arguments: [\n").code, 4);
  EXPECT_EQ(ferry("launch slurm " + path("missing.yaml")).code, 3);
  EXPECT_EQ(ferry("launch slurm").code, 2);
}

// --set takes every word after it.
TEST_F(LaunchConfigurations, AFileAfterSettingsIsReported) {
  EXPECT_THAT(ferry("launch slurm --set name=a run.yaml").err,
              HasSubstr("which configuration? Give a FILE before --set, or --preset NAME"));
  EXPECT_THAT(ferry("launch slurm --preset one-machine --set name=a run.yaml").err,
              HasSubstr("--set run.yaml: expected KEY=VALUE; a configuration FILE goes before"));
  EXPECT_EQ(ferry("launch").code, 2);
}

// A word of a list that begins with -- would be taken for an argument.
TEST_F(LaunchConfigurations, WordsCannotBecomeArguments) {
  const Outcome one = launch("arguments: {wandb-exp-name: \"--load=/x\"}\n");
  ASSERT_EQ(one.code, 0) << one.err;
  EXPECT_THAT(one.out, HasSubstr("--wandb-exp-name=--load=/x\n"));
  EXPECT_THAT(refusal("arguments: {data-path: [a, --load]}\n"),
              HasSubstr("would be taken for an argument"));
}

}  // namespace
