// Folders of other programs: runs that lead to a step, steps of which a part is the model, folders
// with one file of torch.save, archives; and what is said of those that are not read.
#include <gmock/gmock.h>

#include "ckpt/base/error.h"
#include "ckpt/checkpoint.h"
#include "tests/io/memory_file_system.h"
#include "tests/support.h"

namespace ferry {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

using test::fixture;

class ForeignFolder : public testing::Test {
 protected:
  void copy(const std::string& from, const std::string& to) {
    const auto disk = posix_file_system();
    if (disk->status(fixture(from)).kind == PathKind::folder) {
      test::copy_tree(fixture(from), *memory_, to);
    } else {
      memory_->put(to, read_file(*disk, fixture(from), 1 << 24));
    }
  }
  Checkpoint open(const std::string& path, const std::string& iteration = "") {
    return open_checkpoint(memory_, path, {iteration, false});
  }
  std::string problem(ErrorKind kind, const std::string& path) {
    try {
      open(path);
      ADD_FAILURE() << "opened " << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      return error.what();
    }
    return {};
  }
  void make_step(const std::string& folder) {
    copy("foreign/training/accelerate_fsdp/pytorch_model_fsdp_0", folder + "/policy/weights");
    copy("foreign/training/accelerate_fsdp/optimizer_0", folder + "/policy/optimizer");
    memory_->put(folder + "/training_info.json", "{}");
  }
  std::shared_ptr<MemoryFileSystem> memory_ = std::make_shared<MemoryFileSystem>();
};

TEST_F(ForeignFolder, AStepOfNemoRlIsItsPolicyWithTheOptimizer) {
  make_step("run/step_5");
  make_step("run/step_10");
  const Checkpoint run = open("run");
  EXPECT_EQ(run.path, "run/step_10/policy/weights");
  EXPECT_EQ(run.iteration, 10);
  EXPECT_EQ(run.optimizer, OptimizerLayout::plain);
  EXPECT_THAT(run.notes, Contains("run/step_10: the model is in its part policy/weights"));
  EXPECT_EQ(open("run", "5").path, "run/step_5/policy/weights");
  const Checkpoint step = open("run/step_5");
  EXPECT_EQ(step.catalog->entries.size(), run.catalog->entries.size());
}

// A step whose data is there without its metadata is one, and unfinished.
TEST_F(ForeignFolder, AnUnfinishedPartIsSaid) {
  make_step("run/step_10");
  memory_->remove_all("run/step_10/policy/weights/.metadata");
  EXPECT_THAT(problem(ErrorKind::not_found, "run"),
              AllOf(HasSubstr("run/step_10/policy/weights"), HasSubstr("unfinished")));
}

TEST_F(ForeignFolder, StepsOfManyNames) {
  for (const char* name : {"step_7", "step7", "epoch_0_step_7", "ep0-ba7"}) {
    SCOPED_TRACE(name);
    memory_ = std::make_shared<MemoryFileSystem>();
    copy("dcp/old", std::string("run/") + name);
    EXPECT_EQ(open("run").iteration, 7);
    EXPECT_EQ(open("run", "7").path, std::string("run/") + name);
  }
}

TEST_F(ForeignFolder, PartsOfSteps) {
  for (const char* part : {"model_and_optim", "trainer", "actor", "weights", "model"}) {
    SCOPED_TRACE(part);
    memory_ = std::make_shared<MemoryFileSystem>();
    copy("dcp/old", std::string("step/") + part);
    memory_->put("step/huggingface/config.json", "{}");
    copy("foreign/training/accelerate_fsdp/optimizer_0", "step/optim");
    EXPECT_EQ(open("step").path, std::string("step/") + part);
    EXPECT_EQ(open("step").optimizer == OptimizerLayout::plain, std::string("model") == part);
  }
  // Common names alone make no step.
  memory_ = std::make_shared<MemoryFileSystem>();
  copy("dcp/old", "project/model");
  EXPECT_THAT(problem(ErrorKind::not_found, "project"), HasSubstr("look like one: model"));
}

// slime with FSDP: a run like Megatron-LM's, of steps whose model and optimizer are checkpoints.
TEST_F(ForeignFolder, IterationsOfTwoCheckpoints) {
  copy("dcp/old", "run/iter_0000010/model");
  copy("foreign/training/accelerate_fsdp/optimizer_0", "run/iter_0000010/optimizer");
  memory_->put("run/latest_checkpointed_iteration.txt", "10");
  EXPECT_EQ(open("run").path, "run/iter_0000010/model");
  EXPECT_EQ(open("run").iteration, 10);
  EXPECT_EQ(open("run").optimizer, OptimizerLayout::plain);
}

TEST_F(ForeignFolder, VerlsCriticIsSaid) {
  copy("foreign/verl/fsdp2/global_step_1", "run/global_step_1");
  copy("foreign/verl/fsdp2/global_step_1/actor", "run/global_step_1/critic");
  memory_->put("run/latest_checkpointed_iteration.txt", "1");
  EXPECT_EQ(open("run").path, "run/global_step_1/actor");
  EXPECT_THAT(open("run").notes, Contains(HasSubstr("holds critic, which is another checkpoint")));
  EXPECT_EQ(open("run/global_step_1").path, "run/global_step_1/actor");
}

TEST_F(ForeignFolder, OneFileOfTorchSave) {
  copy("foreign/average.pt", "x/last.pt");
  memory_->put("x/config.json", "{}");
  copy("foreign/average.pt", "x/optimizer.pt");
  memory_->put("x/notes.pt", "no file of torch.save");
  const Checkpoint checkpoint = open("x");
  EXPECT_EQ(checkpoint.path, "x/last.pt");
  EXPECT_EQ(checkpoint.format, Format::torch_file);
  EXPECT_THAT(checkpoint.notes,
              Contains("x: the model is in its file last.pt; not read: optimizer.pt"));
  EXPECT_EQ(format_of_folder(*memory_, "x"), std::nullopt);  // it may have other things, too
  EXPECT_TRUE(is_checkpoint_folder(*memory_, "x"));
  copy("foreign/average.pt", "x/best.pt");
  EXPECT_THAT(problem(ErrorKind::invalid, "x"), HasSubstr("the path of one: best.pt, last.pt"));
}

TEST_F(ForeignFolder, ProgramsThatSaveOneFile) {
  copy("foreign/average.pt", "composer/ep0-ba9-rank0.pt");
  copy("foreign/average.pt", "composer/ep0-ba10-rank0.pt");
  copy("foreign/average.pt", "composer/latest-rank0.pt");
  EXPECT_EQ(open("composer").path, "composer/ep0-ba10-rank0.pt");
  EXPECT_EQ(open("composer").iteration, 10);
  EXPECT_THAT(open("composer").writer, HasSubstr("Composer"));

  copy("foreign/average.pt", "nano/model_000900.pt");
  copy("foreign/average.pt", "nano/model_001000.pt");
  EXPECT_THAT(problem(ErrorKind::invalid, "nano"),
              HasSubstr("several"));  // shards, for all we know
  memory_->put("nano/meta_001000.json", "{}");
  memory_->put("nano/optim_001000_rank0.pt", "x");
  EXPECT_EQ(open("nano").path, "nano/model_001000.pt");
  EXPECT_THAT(open("nano").notes, Contains(HasSubstr("the last of 2 steps; not read: optim_")));

  copy("foreign/average.pt", "lit/lit_model.pth");
  memory_->put("lit/model_config.yaml", "name: x");
  EXPECT_THAT(open("lit").conversion, HasSubstr("litgpt convert_from_litgpt"));

  copy("foreign/average.pt", "meta/consolidated.00.pth");
  memory_->put("meta/params.json", "{}");
  EXPECT_EQ(open("meta").path, "meta/consolidated.00.pth");
  copy("foreign/average.pt", "meta/consolidated.01.pth");
  EXPECT_THAT(problem(ErrorKind::unsupported, "meta"),
              AllOf(HasSubstr("2 shards"), HasSubstr("convert_llama_weights_to_hf")));
}

TEST_F(ForeignFolder, ANemoArchiveIsReadInPlace) {
  copy("wild/nemo1/llama.nemo", "x/llama.nemo");
  for (const char* path : {"x", "x/llama.nemo"}) {
    const Checkpoint checkpoint = open(path);
    EXPECT_EQ(checkpoint.path, "x/llama.nemo");
    EXPECT_EQ(checkpoint.writer, "NeMo 1");
    ASSERT_EQ(checkpoint.catalog->entries.size(), 5u);
    EXPECT_EQ(checkpoint.catalog->entries[0].name, "lm_head.weight");
    EXPECT_EQ(checkpoint.catalog->files.at(0).path, "x/llama.nemo/model_weights.ckpt");
  }
}

TEST_F(ForeignFolder, ArchivesThatAreNotReadInPlace) {
  memory_->put("a.nemo", std::string("\x1f\x8b\x08\0\0\0\0\0\0\0\0\0", 12));
  EXPECT_THAT(problem(ErrorKind::unsupported, "a.nemo"),
              AllOf(HasSubstr("gzip"), HasSubstr("tar -xf")));
  memory_->put("b.pt.zst", std::string("\x28\xb5\x2f\xfd\0\0\0\0\0\0\0\0", 12));
  EXPECT_THAT(problem(ErrorKind::unsupported, "b.pt.zst"), HasSubstr("zstd -d"));
  copy("tar/gnu.tar", "c.tar");
  EXPECT_THAT(problem(ErrorKind::unsupported, "c.tar"), HasSubstr("extract it"));
}

TEST_F(ForeignFolder, RanksOfNemo1AreNamed) {
  memory_->put("x/model_config.yaml", "");
  for (const char* rank : {"mp_rank_00", "mp_rank_01"}) {
    memory_->put(std::string("x/") + rank + "/model_weights.ckpt", "");
  }
  EXPECT_THAT(problem(ErrorKind::unsupported, "x"), HasSubstr("megatron_change_num_partitions"));
}

TEST_F(ForeignFolder, LayoutsThatAreNamed) {
  copy("wild/zarr", "zarr");
  EXPECT_THAT(problem(ErrorKind::unsupported, "zarr"),
              AllOf(HasSubstr("zarr"), HasSubstr("--ckpt-format torch_dist")));
  memory_->put("array/weight/.zarray", "{}");
  EXPECT_THAT(problem(ErrorKind::unsupported, "array"), HasSubstr("zarr store"));
  memory_->put("nanotron/10/checkpoint_metadata.json", "{}");
  memory_->put("nanotron/10/model_config.json", "{}");
  memory_->put("nanotron/latest.txt", "10");
  for (const char* path : {"nanotron", "nanotron/10"}) {
    EXPECT_THAT(problem(ErrorKind::unsupported, path), HasSubstr("convert_nanotron_to_hf"));
  }
  memory_->put("neox/latest", "global_step10");
  for (const char* file : {"layer_00-model_00-model_states.pt", "mp_rank_00_model_states.pt"}) {
    memory_->put(std::string("neox/global_step10/") + file, "");
  }
  EXPECT_THAT(problem(ErrorKind::unsupported, "neox"), HasSubstr("convert_neox_to_hf"));
}

TEST_F(ForeignFolder, ExtraStatesOfTransformerEngineAreLeftOut) {
  copy("foreign/extra_state", "x");
  const Checkpoint raw = open_checkpoint(memory_, "x", {"", true});
  EXPECT_EQ(raw.catalog->entries.size(), 5u);
  const Checkpoint checkpoint = open("x");
  EXPECT_EQ(checkpoint.catalog->entries.size(), 3u);
  EXPECT_THAT(checkpoint.notes, Contains(HasSubstr("2 of Transformer Engine's _extra_state are")));
}

TEST_F(ForeignFolder, PathsElsewhereAreNamed) {
  EXPECT_THAT(problem(ErrorKind::unsupported, "s3://bucket/run"), HasSubstr("aws s3 sync"));
  EXPECT_THAT(problem(ErrorKind::unsupported, "gs://bucket/run"), HasSubstr("gcloud storage cp"));
  for (const char* path :
       {"hf://Qwen/Qwen3-8B", "https://huggingface.co/Qwen/Qwen3-8B/tree/main"}) {
    EXPECT_THAT(problem(ErrorKind::unsupported, path),
                HasSubstr("`hf download Qwen/Qwen3-8B --local-dir Qwen3-8B`"));
  }
  EXPECT_THAT(problem(ErrorKind::not_found, "Qwen/Qwen3-8B"),
              HasSubstr("`hf download Qwen/Qwen3-8B --local-dir Qwen3-8B`"));
  memory_->put("Qwen/other", "");  // a folder of one's own
  EXPECT_THAT(problem(ErrorKind::not_found, "Qwen/Qwen3-8B"), testing::Not(HasSubstr("hf")));
  EXPECT_THAT(problem(ErrorKind::not_found, "runs/a/b"), testing::Not(HasSubstr("hf")));
}

}  // namespace
}  // namespace ferry
