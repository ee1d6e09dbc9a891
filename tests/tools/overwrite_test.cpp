// Targets that stand already: what --overwrite replaces, and what it spares.
#include <gmock/gmock.h>

#include <filesystem>

#include "tests/tools/program.h"

namespace {

namespace fs = std::filesystem;
using ferry::test::Outcome;
using ferry::test::Program;
using testing::HasSubstr;

const std::string kSmallRun = std::string(FERRY_FIXTURES) + "/megatron/hot_llama";

TEST_F(Program, OverwriteNeedsItsFlagAndKeepsTheOldOnFailure) {
  const std::string command = "convert " + kSmallRun + " " + path("hf") + " --to hf";
  ASSERT_EQ(ferry(command).code, 0);
  const std::string before = read(path("hf/model.safetensors"));
  EXPECT_EQ(ferry(command).code, 2);
  EXPECT_EQ(ferry(command + " --overwrite --family gpt2").code, 6);
  EXPECT_EQ(read(path("hf/model.safetensors")), before);
  ASSERT_EQ(ferry(command + " --overwrite --dtype fp32").code, 0);
  EXPECT_GT(read(path("hf/model.safetensors")).size(), before.size());
  EXPECT_THAT(left(), testing::ElementsAre("hf"));
}

TEST_F(Program, OverwriteSparesWhatIsNoModel) {
  fs::create_directory(folder / "home");
  write(path("home/diary"), "dear");
  EXPECT_EQ(ferry("convert " + kSmallRun + " " + path("home") + " --to hf --overwrite").code, 2);
  EXPECT_EQ(read(path("home/diary")), "dear");
  fs::create_directory(folder / "empty");
  EXPECT_EQ(ferry("convert " + kSmallRun + " " + path("empty") + " --to hf --overwrite").code, 0);
}

TEST_F(Program, OverwriteSparesOtherFilesNextToTheModel) {
  for (const char* manifest : {"", " --no-manifest"}) {
    const std::string command =
        "convert " + kSmallRun + " " + path("hf") + " --to hf --overwrite" + manifest;
    ASSERT_EQ(ferry(command).code, 0);
    const auto refused_for = [&](const std::string& name) {
      const Outcome outcome = ferry(command);
      EXPECT_EQ(outcome.code, 2) << name;
      EXPECT_THAT(outcome.err, HasSubstr("besides the converted model: " + name + ";"));
      fs::remove_all(path("hf/" + name));
    };
    write(path("hf/README.md"), "mine");
    refused_for("README.md");
    fs::create_directories(path("hf/.git/objects"));
    refused_for(".git/");
    fs::create_directory(path("hf/src"));
    write(path("hf/src/config.json"), "{}");
    refused_for("src/");
    for (int i = 0; i < 7; ++i) write(path("hf/" + std::to_string(i)), "");
    EXPECT_THAT(ferry(command).err, HasSubstr("0, 1, 2, 3, 4 and 2 more;"));
    for (int i = 0; i < 7; ++i) fs::remove(path("hf/" + std::to_string(i)));
    EXPECT_EQ(ferry(command).code, 0);
    fs::remove_all(path("hf"));
  }
}

TEST_F(Program, OverwriteRemovesATokenizerOnlyWhereFerryPutIt) {
  const std::string command = "convert " + kSmallRun + " " + path("hf") + " --to hf --overwrite";
  ASSERT_EQ(ferry(command).code, 0);
  write(path("hf/tokenizer.json"), "{}");
  EXPECT_THAT(ferry(command).err, HasSubstr("tokenizer.json"));
  fs::remove(path("hf/ferry.manifest.json"));
  EXPECT_EQ(ferry(command).code, 0);
}

TEST_F(Program, OverwriteSparesWhatStandsInAnIteration) {
  const std::string run = std::string(FERRY_FIXTURES) + "/megatron/llama_legacy_tp2pp2";
  for (const char* rest : {"", " --no-manifest"}) {
    for (const std::string to : {"torch_dist", "torch", "fsdp_dtensor", "dcp"}) {
      const std::string command =
          "reshard " + run + " " + path("out") + " --pp 1 --to " + to + " --overwrite" + rest;
      const std::string made = to == "dcp" ? "out" : "out/iter_0000005";
      ASSERT_EQ(ferry(command).code, 0);
      write(path(made + "/notes.md"), "mine");
      const Outcome outcome = ferry(command);
      EXPECT_EQ(outcome.code, 2);
      EXPECT_THAT(outcome.err, HasSubstr("besides the checkpoint: notes.md;"));
      fs::remove(path(made + "/notes.md"));
      EXPECT_EQ(ferry(command).code, 0) << to << rest;
      fs::remove_all(path("out"));
    }
  }
}

TEST_F(Program, ATargetThatIsALinkIsRefused) {
  const std::string command = "convert " + kSmallRun + " " + path("link") + " --to hf --overwrite";
  ASSERT_EQ(ferry("convert " + kSmallRun + " " + path("hf") + " --to hf").code, 0);
  fs::create_directory_symlink("hf", path("link"));
  const Outcome outcome = ferry(command);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("link is a symbolic link"));
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_TRUE(fs::exists(path("hf/config.json")));
}

TEST_F(Program, OverwriteNeverReplacesItsSource) {
  ASSERT_EQ(ferry("convert " + kSmallRun + " " + path("a") + " --to safetensors").code, 0);
  const Outcome outcome =
      ferry("convert " + path("a") + " " + path("a/../a") + " --to safetensors --overwrite");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("destroy"));
  EXPECT_TRUE(fs::exists(path("a/model.safetensors")));
}

TEST_F(Program, ATargetWithATrailingSlashIsTheSame) {
  EXPECT_EQ(ferry("convert " + kSmallRun + " " + path("out") + "/ --to hf").code, 0);
  EXPECT_TRUE(fs::exists(path("out/config.json")));
}

}  // namespace
