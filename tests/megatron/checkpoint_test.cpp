// The one door: every kind of path, and what is said of those that are not a checkpoint.
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

#include "ckpt/base/error.h"
#include "ckpt/megatron/rank_folders/write/writer.h"
#include "tests/megatron/reshard_support.h"

namespace ferry {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

using test::fixture;

Checkpoint open(const std::string& path, const std::string& iteration = "") {
  OpenOptions options;
  options.iteration = iteration;
  return open_checkpoint(posix_file_system(), path, options);
}

std::string message(ErrorKind kind, const std::string& path, const std::string& iteration = "",
                    std::shared_ptr<const FileSystem> files = posix_file_system()) {
  try {
    OpenOptions options;
    options.iteration = iteration;
    open_checkpoint(std::move(files), path, options);
    ADD_FAILURE() << "opened " << path;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return {};
}

TEST(OpenCheckpoint, RunFolderAndItsIterationAreTheSame) {
  const Checkpoint run = open(fixture("megatron/hot_llama"));
  EXPECT_EQ(run.format, Format::torch_dist);
  EXPECT_EQ(run.path, fixture("megatron/hot_llama/iter_0000005"));
  EXPECT_EQ(run.iteration, 5);
  const Checkpoint iteration = open(fixture("megatron/hot_llama/iter_0000005"));
  EXPECT_EQ(iteration.catalog->entries.size(), run.catalog->entries.size());
  EXPECT_EQ(open(fixture("megatron/hot_llama"), "5").path, run.path);
  EXPECT_EQ(open(fixture("megatron/hot_llama/")).iteration, 5);
}

// The checkpoint, the state and the folder's own variables are gone before the plan runs.
TEST(OpenCheckpoint, APlanOutlivesWhatItWasMadeFrom) {
  for (const bool sharded : {true, false}) {
    PlannedOutput planned;
    {
      std::optional<Checkpoint> checkpoint = open(fixture("megatron/hot_llama"));
      RunState state = state_of(*checkpoint);
      checkpoint.reset();
      planned = sharded ? plan_torch_dist(std::move(state), {}) : plan_legacy(state, {true});
    }
    EXPECT_FALSE(planned.plan.source->reader_locks.empty());
    const auto memory = std::make_shared<MemoryFileSystem>();
    test::write(planned, memory, "iter_0000005");
    test::expect_truth(open_checkpoint(memory, "iter_0000005"), "hot_llama");
  }
}

TEST(OpenCheckpoint, IterationNeedsARunFolder) {
  EXPECT_THAT(message(ErrorKind::not_found, fixture("megatron/hot_llama"), "6"),
              HasSubstr("options.iteration=5"));
  EXPECT_THAT(message(ErrorKind::invalid, fixture("megatron/hot_llama/iter_0000005"), "5"),
              HasSubstr("is not one"));
  EXPECT_THAT(message(ErrorKind::invalid, fixture("dcp/fsdp.json"), "5"), HasSubstr("is a file"));
}

TEST(OpenCheckpoint, PlainDcp) {
  const Checkpoint checkpoint = open(fixture("dcp/fsdp"));
  EXPECT_EQ(checkpoint.format, Format::dcp);
  EXPECT_EQ(checkpoint.writer, "PyTorch DCP");
  EXPECT_EQ(checkpoint.optimizer, OptimizerLayout::plain);
  EXPECT_EQ(checkpoint.catalog->find("model.embedding.weight")->role, Role::model);
  EXPECT_EQ(checkpoint.catalog->find("optimizer.state.embedding.weight.exp_avg")->role,
            Role::optimizer);
  EXPECT_EQ(open(fixture("dcp/hf_shards")).format, Format::dcp);
}

TEST(OpenCheckpoint, DcpOfMegatronHasArguments) {
  const Checkpoint checkpoint = open(fixture("dcp/torch_dcp"));
  EXPECT_EQ(checkpoint.format, Format::dcp);
  EXPECT_EQ(checkpoint.iteration, 7);
  EXPECT_EQ(checkpoint.args.value.get("num_layers").integer(), 2);
  EXPECT_EQ(checkpoint.layout.data, 2);
  EXPECT_NE(checkpoint.catalog->find("model.w.rows"), nullptr);
}

class ScratchFolder : public testing::Test {
 protected:
  ScratchFolder() {
    std::string pattern = fs::temp_directory_path() / "ferry-test-XXXXXX";
    path_ = ::mkdtemp(pattern.data());
  }
  ~ScratchFolder() override { fs::remove_all(path_); }
  std::string at(const std::string& name) const { return path_ + "/" + name; }
  std::string path_;
};

TEST_F(ScratchFolder, PathsThatAreNoCheckpoint) {
  EXPECT_THAT(message(ErrorKind::not_found, at("nothing")), HasSubstr("does not exist"));
  EXPECT_THAT(message(ErrorKind::not_found, path_), HasSubstr("is an empty folder"));
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  EXPECT_THAT(message(ErrorKind::invalid, at("pipe")), HasSubstr("FIFO"));
  fs::create_symlink("nowhere", at("dangling"));
  EXPECT_THAT(message(ErrorKind::not_found, at("dangling")), HasSubstr("link"));
  fs::create_directory_symlink(fixture("megatron/hot_llama"), at("good"));
  EXPECT_EQ(open(at("good")).iteration, 5);
  EXPECT_THAT(message(ErrorKind::not_found, path_), AllOf(HasSubstr("look like one: good")));
  EXPECT_THAT(message(ErrorKind::invalid, fixture("megatron/hot_llama/iter_0000005/__0_0.distcp")),
              HasSubstr("give the folder"));
}

class MemoryFolder : public testing::Test {
 protected:
  void copy_fixture(const std::string& name, const std::string& to) {
    const auto disk = posix_file_system();
    for (const std::string& file : disk->list(fixture(name))) {
      memory_->put(to + "/" + file, read_file(*disk, fixture(name) + "/" + file, 1 << 22));
    }
  }
  std::string message_of(ErrorKind kind, const std::string& path) {
    return message(kind, path, "", memory_);
  }
  std::shared_ptr<MemoryFileSystem> memory_ = std::make_shared<MemoryFileSystem>();
};

TEST_F(MemoryFolder, ListsWhatWasLookedForAndFound) {
  memory_->put("x/a.txt", "");
  memory_->put("x/b.txt", "");
  EXPECT_THAT(message_of(ErrorKind::unsupported, "x"),
              AllOf(HasSubstr("expected a Megatron-LM run"), HasSubstr("found a.txt, b.txt")));
  memory_->put("y", "just some text in a file");
  EXPECT_THAT(message_of(ErrorKind::unsupported, "y"), HasSubstr("neither a safetensors file"));
  memory_->put("z", "");
  EXPECT_THAT(message_of(ErrorKind::unsupported, "z"), HasSubstr("neither a safetensors file"));
}

TEST_F(MemoryFolder, UnfinishedCheckpoints) {
  memory_->put("x/__0_0.distcp", "x");
  EXPECT_THAT(message_of(ErrorKind::not_found, "x"), HasSubstr("unfinished"));
  memory_->put("x/metadata.json", R"({"sharded_backend": "torch_dist"})");
  EXPECT_THAT(message_of(ErrorKind::not_found, "x"), HasSubstr("unfinished"));
  copy_fixture("megatron/hot_llama/iter_0000005", "y");
  memory_->remove_all("y/metadata.json");
  EXPECT_THAT(message_of(ErrorKind::not_found, "y"),
              AllOf(HasSubstr("metadata.json"), HasSubstr("unfinished")));
}

TEST_F(MemoryFolder, ForeignOrDamagedMarker) {
  copy_fixture("megatron/hot_llama/iter_0000005", "x");
  memory_->put("x/metadata.json", R"({"sharded_backend": "zarr", "sharded_backend_version": 1})");
  EXPECT_THAT(message_of(ErrorKind::unsupported, "x"), HasSubstr("'zarr'"));
  memory_->put("x/metadata.json",
               R"({"sharded_backend": "torch_dist", "sharded_backend_version": 2})");
  EXPECT_THAT(message_of(ErrorKind::unsupported, "x"), HasSubstr("version 2"));
  for (const char* damaged : {"", "{", "[]", "{}", R"({"sharded_backend": 5})", "\xff\xfe"}) {
    memory_->put("x/metadata.json", damaged);
    EXPECT_THAT(message_of(ErrorKind::corrupt, "x"), HasSubstr("metadata.json")) << damaged;
  }
  const std::string deep = std::string(400000, '[') + std::string(400000, ']');
  memory_->put("x/metadata.json",
               R"({"sharded_backend": "torch_dist", "sharded_backend_version": )" + deep + "}");
  EXPECT_THAT(message_of(ErrorKind::corrupt, "x"), HasSubstr("nested deeper"));
  memory_->put("x/metadata.json", R"({"sharded_backend": "torch_dist", "future_field": [1]})");
  OpenOptions options;
  EXPECT_EQ(open_checkpoint(memory_, "x", options).args.value.get("num_layers").integer(), 4);
}

TEST_F(MemoryFolder, FolderNameAndStateMayDisagree) {
  copy_fixture("megatron/hot_llama/iter_0000005", "run/iter_0000007");
  const Checkpoint checkpoint = open_checkpoint(memory_, "run", {});
  EXPECT_EQ(checkpoint.iteration, 5);
  ASSERT_EQ(checkpoint.notes.size(), 2u);
  EXPECT_THAT(checkpoint.notes[0], HasSubstr("only complete iteration"));
  EXPECT_THAT(checkpoint.notes[1], HasSubstr("named for iteration 7"));
}

TEST_F(MemoryFolder, StepFoldersOfTorchtitan) {
  copy_fixture("dcp/old", "ckpt/step-300");
  EXPECT_EQ(open_checkpoint(memory_, "ckpt/step-300").iteration, 300);
  EXPECT_EQ(open_checkpoint(memory_, "ckpt").iteration, 300);
  memory_->remove_all("ckpt/step-300/.metadata");  // a save that did not end is none
  EXPECT_THAT(message_of(ErrorKind::unsupported, "ckpt"), HasSubstr("found step-300"));
}

TEST_F(MemoryFolder, CommonStateMayBeAbsent) {
  copy_fixture("megatron/hot_apertus/iter_0000005", "x");
  memory_->remove_all("x/common.pt");
  const Checkpoint checkpoint = open_checkpoint(memory_, "x", {});
  EXPECT_FALSE(checkpoint.args.value);
  EXPECT_THAT(checkpoint.notes, testing::ElementsAre(HasSubstr("arguments are unknown")));
  EXPECT_EQ(checkpoint.layout.world_size, 2);
}

}  // namespace
}  // namespace ferry
