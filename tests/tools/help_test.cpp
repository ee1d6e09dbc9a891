// Help in its forms: texts, man pages, completions that shells read.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/tools/program.h"

namespace {

using ferry::test::Outcome;
using ferry::test::Program;
using nlohmann::json;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST_F(Program, HelpOfACommandIsItsHelp) {
  EXPECT_EQ(ferry("help").out, ferry("--help").out);
  EXPECT_EQ(ferry("help data merge").out, ferry("data merge --help").out);
  EXPECT_EQ(ferry("help train").out, ferry("train --help").out);
  EXPECT_THAT(ferry("help").out, HasSubstr("train "));
  EXPECT_THAT(ferry("help families").out, HasSubstr("\nllama "));
  EXPECT_EQ(ferry("help convert --json").code, 2);
  EXPECT_THAT(ferry("help data merge").out, HasSubstr("Usage: ferry data merge [OPTIONS]"));
  const Outcome unknown = ferry("help data sail");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("'sail' is not a command of ferry data; the commands are"));
  EXPECT_THAT(ferry("help data tokenise").err,
              HasSubstr("'tokenise' is not a command of ferry data; the nearest is tokenize;"));
  EXPECT_THAT(ferry("help tokenize").err, HasSubstr("the nearest is data tokenize;"));
  EXPECT_THAT(ferry("help convert x").err,
              HasSubstr("ferry convert has no command 'x'; see: ferry help convert"));
}

TEST_F(Program, HelpHasExamplesOfItsOwnCommandAlone) {
  for (const char* command : {"data", "runs", "launch", "help", "completion"}) {
    const std::string help = ferry(std::string(command) + " --help").out;
    EXPECT_THAT(help, HasSubstr("\nExamples:\n")) << command;
    EXPECT_THAT(help, Not(HasSubstr("ferry convert"))) << command;
    EXPECT_THAT(help, Not(HasSubstr("Exit codes:"))) << command;
  }
  EXPECT_THAT(ferry("version --help").out, Not(HasSubstr("Examples:")));
}

// A negated flag's default is that of what it negates, and would be misread.
TEST_F(Program, HelpOfTrainShowsDefaultsOfWhatTakesAValue) {
  const std::string help = ferry("train --help").out;
  EXPECT_THAT(help, AllOf(HasSubstr("\n  --disable-bias-linear\n"), HasSubstr("\n  --swiglu\n"),
                          HasSubstr("\n  --num-layers\n"), Not(HasSubstr("None"))));
  EXPECT_THAT(help, ContainsRegex("\n  --device +auto; one of auto, cpu, cuda\n"));
  EXPECT_THAT(help, ContainsRegex("\n  --adam-beta2 +0.999\n"));
  EXPECT_THAT(help, ContainsRegex("\n  --attention-backend +auto; one of flash, fused,"));
  EXPECT_THAT(ferry("help --man train").out, HasSubstr("\nBy default auto; one of auto"));
}

TEST_F(Program, ShowsItsVersion) {
  EXPECT_THAT(ferry("version").out, StartsWith("ferry 0."));
  EXPECT_EQ(ferry("version").out, ferry("--version").out);
  EXPECT_EQ(ferry("version").out, ferry("-V").out);
}

TEST_F(Program, ErrorsInJsonSayWhatToDo) {
  const json error = json::parse(ferry("inspect --no-such-option x --json").out).at("error");
  EXPECT_EQ(error.at("exit_code"), 2);
  EXPECT_EQ(error.at("hint"), "ferry inspect --help shows how to use it");
}

TEST_F(Program, ManPagesAreRoff) {
  const std::string page = ferry("help --man convert").out;
  EXPECT_THAT(page,
              AllOf(StartsWith(".TH FERRY\\-CONVERT 1 "), HasSubstr("\n.SH SYNOPSIS\n"),
                    HasSubstr("\\fB\\-\\-to\\fR \\fIFORMAT\\fR\n"),
                    HasSubstr("\n.SH EXAMPLES\n.nf\n"), HasSubstr("\\-\\-max\\-shard\\-size")));
  EXPECT_THAT(ferry("help --man train").out, HasSubstr("\\-\\-tensor\\-model\\-parallel\\-size"));
  ASSERT_EQ(ferry("help --write-shared-files " + path("share")).code, 0);
  for (const char* name : {"ferry", "ferry-data-merge", "ferry-train"}) {
    EXPECT_THAT(read(path("share/man/man1/" + std::string(name) + ".1")), StartsWith(".TH "));
  }
  EXPECT_EQ(read(path("share/bash-completion/completions/ferry")), ferry("completion bash").out);
  write(path("file"), "");
  const Outcome at_a_file = ferry("help --write-shared-files " + path("file"));
  EXPECT_EQ(at_a_file.code, 7);
  EXPECT_THAT(at_a_file.err, HasSubstr("cannot create " + path("file")));
  EXPECT_EQ(ferry("help --write-shared-files ''").code, 2);
}

// What bash offers for a line whose last word is being typed.
TEST_F(Program, BashCompletes) {
  write(path("bash"), ferry("completion bash").out);
  const auto offered = [&](const std::string& line) {
    write(path("try"),
          ". " + path("bash") + "\nCOMP_WORDS=(" + line +
              ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_ferry\necho \"${COMPREPLY[*]}\"\n");
    return ferry("version > /dev/null; bash " + path("try")).out;
  };
  EXPECT_EQ(offered("ferry con"), "convert\n");
  EXPECT_EQ(offered("ferry data mer"), "merge\n");
  EXPECT_EQ(offered("ferry data merge --so"), "--sort\n");
  EXPECT_EQ(offered("ferry convert a b --to ''"), "hf safetensors torch torch_dist\n");
  EXPECT_EQ(offered("ferry train --pipeline-model-parallel-si"),
            "--pipeline-model-parallel-size\n");
  EXPECT_EQ(offered("ferry train --device c"), "cpu cuda\n");
  EXPECT_EQ(offered("ferry completion z"), "zsh\n");
  EXPECT_EQ(offered("ferry inspect ''"), "\n");  // files: bash's own
}

TEST_F(Program, OtherShellsHaveTheSameCommands) {
  EXPECT_THAT(ferry("completion zsh").out,
              AllOf(StartsWith("#compdef ferry\n"), HasSubstr("_ferry_data_merge() {"),
                    HasSubstr("FORMAT:(hf safetensors torch torch_dist)")));
  EXPECT_THAT(ferry("completion fish").out,
              AllOf(HasSubstr("__ferry_at \" data merge\""), HasSubstr("-l max-shard-size -r")));
  EXPECT_EQ(ferry("completion tcsh").code, 2);
}

}  // namespace
