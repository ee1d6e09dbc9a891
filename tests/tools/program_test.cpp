// The program as a user or a script meets it: text, JSON, exit codes, and what it leaves on disk.
#include "tests/tools/program.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "tools/terminal/interrupt.h"

namespace {

namespace fs = std::filesystem;
using ferry::test::Outcome;
using ferry::test::Program;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
namespace tool = ferry::tool;

const std::string kRun = std::string(FERRY_FIXTURES) + "/megatron/hot_llama";

TEST_F(Program, HelpShowsExamplesAndExitCodes) {
  const Outcome help = ferry("--help");
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.out, HasSubstr("ferry convert runs/llama llama-hf --to hf"));
  EXPECT_THAT(help.out, HasSubstr("130  cancelled"));
  EXPECT_THAT(ferry("inspect --help").out, HasSubstr("Examples:"));
  EXPECT_THAT(ferry("report --help").out, HasSubstr("[OPTIONS] PATH..."));
  EXPECT_THAT(ferry("convert --help").out, HasSubstr("[OPTIONS] PATH OUT --to FORMAT"));
  EXPECT_THAT(ferry("convert --help").out, HasSubstr("--max-shard-size SIZE"));
  EXPECT_THAT(ferry("--version").out, HasSubstr("ferry 0."));
}

TEST_F(Program, RefusesWrongUse) {
  for (const char* wrong :
       {"", "sail", "inspect", "inspect --no-such-flag x", "convert x y", "convert x y --to gguf",
        "convert x y --to hf --threads 0", "convert x y --to hf --memory lots",
        "convert x y --to hf --dtype int8", "convert x y --to hf --vocab-size 0",
        "convert x y --to hf --force", "convert x y --to hf --optimizer",
        "convert x y --to torch --max-shard-size 1GB",
        "convert x y --to safetensors --family llama"}) {
    const Outcome outcome = ferry(wrong);
    EXPECT_EQ(outcome.code, 2) << wrong;
    EXPECT_EQ(outcome.out, "") << wrong;
    EXPECT_THAT(outcome.err, testing::StartsWith("ferry: error: ")) << wrong;
  }
}

TEST_F(Program, WritesMoreFilesThanMayBeOpen) {
  const std::string llama = std::string(FERRY_FIXTURES) + "/megatron/llama_tp2dp2_dpr ";
  const std::string layout = " --tp 2 --pp 2 --dp 16 --optimizer dp_reshardable";
  ASSERT_EQ(ferry("reshard " + llama + path("many") + layout).code, 0);
  const std::string few = "; ulimit -n 40; " FERRY_PROGRAM " reshard ";
  const Outcome outcome = ferry("--version" + few + llama + path("few") + layout);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const std::string iteration = "/iter_0000005";
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(path("many") + iteration)) {
    const fs::path twin = path("few") + iteration + "/" + entry.path().filename().string();
    if (entry.path().extension() != ".distcp") continue;
    EXPECT_EQ(read(twin.string()), read(entry.path().string())) << twin;
    ++files;
  }
  EXPECT_GT(files, 40u);
}

TEST_F(Program, SaysWhatOptionsTake) {
  const auto refusal = [&](const std::string& arguments) {
    const Outcome outcome = ferry(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    return outcome.err;
  };
  const std::string reshard = "reshard " + kRun + " " + path("o");
  EXPECT_THAT(refusal(reshard + " --tp 0x2"), HasSubstr("'0x2' is not a whole number from 1 to"));
  EXPECT_THAT(refusal(reshard + " --optimizer foo"),
              HasSubstr("'foo' is none of dp_reshardable, fully_reshardable, legacy, none"));
  EXPECT_EQ(ferry(reshard + " --optimizer 2").code, 2);
  EXPECT_THAT(refusal(reshard + " --to foo"), HasSubstr("'foo' is none of"));
  EXPECT_THAT(refusal("convert " + kRun + " " + path("o") + " --to gguf"),
              HasSubstr("'gguf' is none of"));
  EXPECT_THAT(refusal("prune " + kRun + " --keep-last 99999999999999999999"),
              HasSubstr("is not a whole number from 1 on"));
  EXPECT_EQ(ferry(reshard + " --tp 02 --dry-run").code, 0);
  const json octal = json::parse(ferry(reshard + " --dp 010 --dry-run --json").out);
  EXPECT_EQ(octal["target"]["layout"]["data_parallel"], 10);  // not 8
  EXPECT_THAT(refusal("verify ''"), HasSubstr("an empty path"));
  write(path("file"), "");
  EXPECT_THAT(refusal("convert " + kRun + " " + path("file/x") + " --to hf"),
              HasSubstr("file, which is to hold the target"));
}

TEST_F(Program, OtherFormatsAreNamedWithWhatWritesThem) {
  const std::pair<const char*, const char*> formats[] = {
      {"dcp", "`ferry reshard PATH OUT --to dcp`"},
      {"Megatron-LM", "torch_dist"},
      {"gguf", "convert_hf_to_gguf.py"},
      {"GGUF", "convert_hf_to_gguf.py"}};
  for (const auto& [format, step] : formats) {
    const Outcome outcome = ferry(fmt::format("convert x {} --to {}", path("out"), format));
    EXPECT_EQ(outcome.code, 2);
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("is none of hf"), HasSubstr(step)));
  }
  EXPECT_THAT(ferry("reshard x y --to gguf").err, HasSubstr("convert_hf_to_gguf.py"));
  EXPECT_EQ(
      ferry("convert x y --to nonsense").err.find("none of hf, safetensors, torch, torch_dist:"),
      std::string::npos);
}

TEST_F(Program, TargetsElsewhereAreRefused) {
  const Outcome outcome = ferry("convert " FERRY_FIXTURES "/foreign/model s3://bucket/out --to hf");
  EXPECT_EQ(outcome.code, 5);
  EXPECT_THAT(outcome.err, HasSubstr("write to a folder here"));
}

TEST_F(Program, ErrorsAreJsonWhereThatIsAskedFor) {
  for (const std::string& wrong : {"inspect --json " + path("no"), std::string("diff --json x"),
                                   "verify --json " + path("no")}) {
    const Outcome outcome = ferry(wrong);
    const json error = json::parse(outcome.out).at("error");
    EXPECT_EQ(error.at("exit_code").get<int>(), outcome.code) << wrong;
    EXPECT_THAT(outcome.err, HasSubstr("ferry: error: " + error.at("message").get<std::string>()));
  }
  EXPECT_EQ(json::parse(ferry("inspect --json " + path("no")).out)
                .at("error")
                .at("kind")
                .get<std::string>(),
            "not found");
}

TEST_F(Program, WhatIsDoneAndCannotBeReportedIsDone) {
  const Outcome outcome = ferry("convert " + kRun + " " + path("hf") + " --to hf >/dev/full");
  EXPECT_EQ(outcome.code, 7);
  EXPECT_THAT(outcome.err,
              HasSubstr(path("hf") + " is complete; but the report could not be printed"));
  EXPECT_EQ(ferry("verify " + path("hf")).code, 0);
}

TEST_F(Program, AFileThatMayNotGrowIsAnError) {
  const std::string limited = "ulimit -f 8; " + std::string(FERRY_PROGRAM) + " convert " + kRun +
                              " " + path("hf") + " --to hf 2>" + path("err");
  EXPECT_EQ(WEXITSTATUS(std::system(limited.c_str())), 8);
  EXPECT_THAT(read(path("err")), HasSubstr("File too large"));
  fs::remove(path("err"));
  EXPECT_TRUE(fs::is_empty(folder));
}

TEST_F(Program, AnEmptyIterationIsNone) {
  for (const char* command : {"inspect ", "verify "}) {
    const Outcome outcome = ferry(command + kRun + " --iteration ''");
    EXPECT_EQ(outcome.code, 2) << command;
    EXPECT_THAT(outcome.err, HasSubstr("--iteration: an empty text names no iteration"));
  }
}

TEST_F(Program, InspectShowsWhatARunIs) {
  const Outcome outcome = ferry("inspect " + kRun + " --tensors '*linear_qkv*' --stats '*final*'");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  for (const char* expected :
       {"torch_dist", "iteration    5", "TP 2", "llama", "4 layers", "62,752", "BF16",
        "decoder.layers.self_attention.linear_qkv.weight", "[4, 64, 32]"}) {
    EXPECT_THAT(outcome.out, HasSubstr(expected));
  }
  EXPECT_THAT(outcome.out, HasSubstr("decoder.final_layernorm.weight  BF16"));
}

TEST_F(Program, InspectTakesAPathAfterABarePattern) {
  EXPECT_THAT(ferry("inspect --tensors " + kRun).out, HasSubstr("output_layer.weight"));
  EXPECT_THAT(ferry("inspect '--tensors=output*' " + kRun).out, HasSubstr("output_layer.weight"));
}

TEST_F(Program, InspectPrintsArgumentsAndObjects) {
  const Outcome outcome = ferry("inspect --args --objects " + kRun);
  EXPECT_THAT(outcome.out, testing::ContainsRegex("num_layers +4\n"));
  EXPECT_THAT(outcome.out, testing::ContainsRegex("\ncheckpoint_version\n  3.0\n"));
  EXPECT_THAT(outcome.out, HasSubstr(" objects are empty"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("_extra_state/")));
}

TEST_F(Program, InspectPrintsOneJsonObject) {
  const Outcome outcome = ferry("inspect --json --objects --stats 'output_layer.weight' " + kRun);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json report = json::parse(outcome.out);
  EXPECT_EQ(report.at("format"), "torch_dist");
  EXPECT_EQ(report.at("iteration"), 5);
  EXPECT_EQ(report.at("family"), "llama");
  EXPECT_EQ(report.at("parameters"), 62752);
  EXPECT_EQ(report.at("bytes"), 125504);
  EXPECT_EQ(report.at("layout").at("tensor_parallel"), 2);
  EXPECT_EQ(report.at("args").at("num_layers"), 4);
  EXPECT_EQ(report.at("optimizer").at("layout"), "none");
  EXPECT_EQ(report.at("tensors").size(), 9u);
  EXPECT_EQ(report.at("tensors").at(0).at("dtype"), "BF16");
  EXPECT_EQ(report.at("files").size(), 2u);
  EXPECT_FALSE(report.at("objects").empty());
  EXPECT_TRUE(report.at("notes").is_array());
  EXPECT_EQ(report.at("stats").at(0).at("nan"), 0);
}

TEST_F(Program, EveryKindOfErrorHasItsExitCode) {
  EXPECT_EQ(ferry("inspect " + path("nothing")).code, 3);
  EXPECT_EQ(ferry("inspect " + kRun + " --iteration 6").code, 3);
  EXPECT_EQ(ferry("inspect " + kRun + " --tensors no.such").code, 3);
  write(path("cut.safetensors"), "\x08");
  EXPECT_EQ(ferry("inspect " + path("cut.safetensors")).code, 4);
  EXPECT_EQ(ferry("convert " + kRun + " " + path("out") + " --to hf --family gpt2").code, 6);
  EXPECT_EQ(ferry("convert " + kRun + " " + path("no/out") + " --to hf --dry-run").code, 3);
  EXPECT_EQ(ferry("inspect " + kRun + " > /dev/full").code, 7);
}

TEST_F(Program, ErrorsPrintNoControlCharacters) {
  const Outcome outcome = ferry("inspect " + path("\x1b[31mred"));
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, Not(HasSubstr("\x1b")));
  EXPECT_THAT(outcome.err, HasSubstr("\\x1b[31mred"));
}

TEST_F(Program, ConvertWritesAFolderThatInspectReads) {
  const Outcome outcome = ferry("convert " + kRun + " " + path("hf") + " --to hf --json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const json report = json::parse(outcome.out);
  EXPECT_EQ(report.at("family"), "llama");
  for (const json& file : report.at("files")) {
    EXPECT_EQ(fs::file_size(folder / "hf" / std::string(file.at("path"))), file.at("bytes"));
  }
  const json again = json::parse(ferry("inspect --json " + path("hf")).out);
  EXPECT_EQ(again.at("format"), "hf");
  EXPECT_EQ(again.at("family"), "llama");
  EXPECT_EQ(again.at("parameters"), report.at("parameters"));
  EXPECT_THAT(left(), testing::ElementsAre("hf"));
}

TEST_F(Program, PlainSafetensorsHoldTheSameValues) {
  ASSERT_EQ(
      ferry("convert " + kRun + " " + path("all") + " --to safetensors --max-shard-size 20kB").code,
      0);
  const json a = json::parse(ferry("inspect --json --stats '*' " + kRun).out);
  const json b = json::parse(ferry("inspect --json --stats '*' " + path("all")).out);
  EXPECT_EQ(a.at("stats"), b.at("stats"));
  EXPECT_EQ(b.at("files").size(), 6u);
}

TEST_F(Program, CastsFloats) {
  ASSERT_EQ(ferry("convert " + kRun + " " + path("f32") + " --to safetensors --dtype fp32").code,
            0);
  const json a = json::parse(ferry("inspect --json --stats '*' " + kRun).out);
  const json b = json::parse(ferry("inspect --json --stats '*' " + path("f32")).out);
  for (size_t i = 0; i < a.at("stats").size(); ++i) {
    EXPECT_EQ(b.at("stats").at(i).at("dtype"), "F32");
    EXPECT_EQ(a.at("stats").at(i).at("std"), b.at("stats").at(i).at("std"));
  }
}

TEST_F(Program, AModelMayLieInARunAndNotInAnIteration) {
  std::filesystem::copy(kRun, path("run"), std::filesystem::copy_options::recursive);
  const std::string convert = "convert " + path("run") + " " + path("run/");
  const Outcome inside = ferry(convert + "iter_0000005/hf --to hf");
  EXPECT_EQ(inside.code, 2);
  EXPECT_THAT(inside.err, HasSubstr("is inside the source's iteration"));
  EXPECT_EQ(ferry(convert + "hf --to hf").code, 0);
}

TEST_F(Program, DryRunWritesNothing) {
  const Outcome outcome = ferry("convert " + kRun + " " + path("hf") + " --to hf --dry-run");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("would write"));
  EXPECT_TRUE(left().empty());
}

TEST_F(Program, ReshardCopiesWhatIsNoRunAsPlainDcp) {
  const std::string command =
      "reshard " FERRY_FIXTURES "/dcp/fsdp " + path("out") + " --to dcp --dp 2";
  ASSERT_EQ(ferry(command).code, 0);
  EXPECT_TRUE(fs::exists(path("out/__1_0.distcp")));
  EXPECT_EQ(ferry("diff " FERRY_FIXTURES "/dcp/fsdp " + path("out")).code, 0);
  EXPECT_EQ(ferry("verify " + path("out")).code, 0);
  EXPECT_THAT(ferry(command + " --overwrite --tp 2").err, HasSubstr("only --dp applies"));
  EXPECT_THAT(ferry(command + " --overwrite --optimizer none").err,
              HasSubstr("without --optimizer;"));
}

// A file of `bytes` zero bytes as one tensor, sparse on disk.
void write_zeros(const std::string& file, uint64_t bytes) {
  const std::string header = R"({"a":{"dtype":"U8","shape":[)" + std::to_string(bytes) +
                             R"(],"data_offsets":[0,)" + std::to_string(bytes) + "]}}";
  const uint64_t length = header.size();
  std::ofstream out(file, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&length), 8);
  out << header;
  out.close();
  fs::resize_file(file, 8 + length + bytes);
}

TEST_F(Program, FilesNeverTakeTheNumberOfAClosedStream) {
  const std::string convert = "convert " + kRun + " " + path("out") + " --to hf";
  ASSERT_EQ(ferry(convert).code, 0);
  const std::string model = read(path("out/model.safetensors"));
  for (const char* closed : {" 2>&-", " <&- >&- 2>&-"}) {
    fs::remove_all(path("out"));
    std::system((std::string(FERRY_PROGRAM) + " " + convert + closed).c_str());
    EXPECT_TRUE(read(path("out/model.safetensors")) == model) << closed;
  }
  // Nothing can be printed, but the exit code is right.
  const std::string wrong = std::string(FERRY_PROGRAM) + " inspect " + path("nothing");
  for (const char* lost : {" 2>&-", " 2>/dev/full", " <&- >&- 2>&-"}) {
    EXPECT_EQ(WEXITSTATUS(std::system((wrong + lost).c_str())), 3) << lost;
  }
  const std::string help = std::string(FERRY_PROGRAM) + " --help";
  EXPECT_EQ(WEXITSTATUS(std::system((help + " >/dev/full 2>/dev/null").c_str())), 7);
}

TEST_F(Program, EightBitFloatsAreNoModel) {
  const Outcome outcome =
      ferry("convert " + kRun + " " + path("out") + " --to hf --dtype float8_e4m3fn");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--dtype float8_e4m3fn"));
}

TEST_F(Program, AWordThatIsNoCommandIsNamed) {
  const Outcome outcome = ferry("inspec " + kRun);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err,
              HasSubstr("'inspec' is not a command; the nearest is inspect; the commands "
                        "are inspect, convert"));
  EXPECT_THAT(ferry("convret a b").err,
              HasSubstr("'convret' is not a command; the nearest is convert;"));
  EXPECT_THAT(ferry("hlep").err, HasSubstr("'hlep' is not a command; the nearest is help;"));
  EXPECT_THAT(ferry("tokenise x").err, HasSubstr("the nearest is data tokenize;"));
  EXPECT_THAT(ferry("--hlep").err,
              HasSubstr("unknown option '--hlep' of ferry; the nearest is --help"));
  EXPECT_THAT(ferry("xyzzy").err, HasSubstr("'xyzzy' is not a command; the commands are inspect"));
  EXPECT_THAT(
      ferry("runs lst x").err,
      HasSubstr("'lst' is not a command of ferry runs; the nearest is list; the commands are list, "
                "follow"));
  EXPECT_THAT(ferry("runs").err,
              HasSubstr("which command? The commands of ferry runs are list, follow"));
  EXPECT_THAT(ferry("").err, HasSubstr("which command? The commands are inspect, convert"));
  EXPECT_THAT(ferry("runs --x").err, HasSubstr("unknown option '--x' of ferry runs\n"));
  EXPECT_THAT(ferry("data merge --x").err, HasSubstr("hint: ferry data merge --help shows"));
}

TEST_F(Program, AMisspelledOptionIsNamedWithTheNearest) {
  const Outcome outcome = ferry("inspect " + kRun + " --itertion 5");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("unknown option '--itertion' of ferry inspect; the nearest is "
                                     "--iteration\n"));
  // Before what is missing where it is misspelled.
  EXPECT_THAT(ferry("convert a b --too=hf").err, HasSubstr("the nearest is --to\n"));
  EXPECT_THAT(ferry("inspect a --xyz").err, HasSubstr("unknown option '--xyz' of ferry inspect\n"));
}

TEST_F(Program, ANameTooManyIsNamed) {
  EXPECT_THAT(ferry("verify a b").err, HasSubstr("unexpected argument 'b' of ferry verify\n"));
  const Outcome three = ferry("convert a b c --to hf");
  EXPECT_EQ(three.code, 2);
  EXPECT_THAT(three.err, HasSubstr("unexpected argument 'c' of ferry convert\n"));
  // After the mark, options are names.
  const std::string said = "unexpected argument '--to' of ferry convert; after -- everything";
  EXPECT_THAT(ferry("convert in -- -dash2 --to hf").err, HasSubstr(said));
  EXPECT_THAT(ferry("convert in out -- --to hf").err, HasSubstr(said));
  EXPECT_THAT(ferry("--to hf convert a b").err,
              HasSubstr("--to is an option of ferry convert; put it after that name"));
  EXPECT_THAT(ferry("convert in --too hf -- out").err, HasSubstr("unknown option '--too' of"));
}

TEST_F(Program, AnOptionHasOneValue) {
  const Outcome twice = ferry("convert a b --to hf --to torch");
  EXPECT_EQ(twice.code, 2);
  EXPECT_THAT(twice.err, HasSubstr("--to is given 2 times; give it once\n"));
  EXPECT_THAT(ferry("report a -o b -o c").err, HasSubstr("--output is given 2 times"));
  EXPECT_THAT(ferry("convert a b --to").err, HasSubstr("--to needs a value: FORMAT\n"));
}

TEST_F(Program, PartsOfACheckpointAreNamedAsSuch) {
  const Outcome outcome = ferry("inspect " + kRun + "/iter_0000005/metadata.json");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("give the folder that holds it"));
}

// `timeout` signals a process and then its group: the second one may find the program at its end.
TEST(Interrupt, ASignalSentTwiceIsOneAfterTheScopeToo) {
  const pid_t child = ::fork();
  if (child == 0) {
    bool is_set = false;
    {
      const tool::InterruptScope scope;
      ::raise(SIGINT);
      is_set = *scope.flag();
    }
    ::raise(SIGINT);
    ::_exit(is_set ? 3 : 4);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 3);
}

TEST_F(Program, ASignalLeavesNoOutput) {
  write_zeros(path("big.safetensors"), uint64_t{1} << 30);
  const std::string source = path("big.safetensors"), target = path("out");
  const pid_t child = begin_ferry("convert " + source + " " + target + " --to safetensors");
  // Once the partial folder stands, the signal is caught.
  for (int i = 0; i < 2000 && left().size() < 2; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  // Twice, as `timeout` does, which signals the process and its group.
  ::kill(child, SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  ::kill(child, SIGINT);
  const int status = end_of(child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 0) GTEST_SKIP() << "the disk was faster than the signal";
  if (WEXITSTATUS(status) == 8) GTEST_SKIP() << "no room for a file of 1 GiB";
  EXPECT_EQ(WEXITSTATUS(status), 130);
  EXPECT_THAT(left(), testing::ElementsAre("big.safetensors"));
}

}  // namespace
