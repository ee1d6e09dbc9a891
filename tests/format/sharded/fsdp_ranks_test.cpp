// Ranks of FSDP as verl saved them (tests/interop/fixtures/make_verl.py), against what PyTorch
// gathers.
#include "ckpt/format/fsdp_ranks/fsdp_ranks.h"

#include <gmock/gmock.h>

#include "tests/format/sharded/sharded_files.h"

namespace ferry {
namespace {

using test::contents;
using test::kForeign;
using testing::AllOf;
using testing::HasSubstr;

const std::string kActor = "/global_step_1/actor";
const std::string kRank = "x/model_world_size_2_rank_";

std::map<std::string, std::string> two_ranks() { return test::files_below("verl/fsdp2" + kActor); }

std::string refusal(const std::map<std::string, std::string>& files, ErrorKind kind) {
  try {
    open_fsdp_ranks(test::in_memory(files, "x"), "x");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "was opened";
  return {};
}

TEST(FsdpRanks, AreJoined) {
  const Checkpoint checkpoint =
      open_checkpoint(posix_file_system(), kForeign + "verl/fsdp2" + kActor);
  EXPECT_EQ(checkpoint.format, Format::fsdp);
  EXPECT_EQ(checkpoint.iteration, 1);
  EXPECT_EQ(checkpoint.layout.world_size, 2);
  EXPECT_EQ(checkpoint.optimizer_problem, "");
  EXPECT_EQ(contents(checkpoint.catalog, Role::model),
            test::truth("verl/fsdp2.safetensors", false));
  auto moments = contents(checkpoint.catalog, Role::optimizer);
  std::erase_if(moments,
                [](const auto& each) { return each.first.find(".step.") != std::string::npos; });
  EXPECT_EQ(moments, test::truth("verl/fsdp2.safetensors", true));
  const Entry* embedding = checkpoint.catalog->find("model.embed_tokens.weight");
  ASSERT_NE(embedding, nullptr);
  ASSERT_EQ(embedding->chunks.size(), 2u);  // 41 rows over two ranks
  EXPECT_EQ(embedding->chunks[1].box.offset[0], 21);
  EXPECT_EQ(embedding->chunks[1].box.size[0], 20);
}

TEST(FsdpRanks, OfAMeshWithCopiesOneCopyIsRead) {
  const std::string folder = kForeign + "verl/hsdp" + kActor;
  const Checkpoint checkpoint = open_checkpoint(posix_file_system(), folder);
  EXPECT_EQ(contents(checkpoint.catalog, Role::model), test::truth("verl/hsdp.safetensors", false));
  for (const Entry& entry : checkpoint.catalog->entries) EXPECT_LE(entry.chunks.size(), 2u);
}

// _StridedShard, and tensors that only FSDP's axis of the mesh spreads: embeddings and norms.
TEST(FsdpRanks, OfTensorParallelModulesAreJoined) {
  const Checkpoint checkpoint = open_checkpoint(posix_file_system(), kForeign + "verl/tp" + kActor);
  EXPECT_EQ(contents(checkpoint.catalog, Role::model), test::truth("verl/tp.safetensors", false));
  const Entry* embedding = checkpoint.catalog->find("model.embed_tokens.weight");
  ASSERT_NE(embedding, nullptr);
  EXPECT_EQ(embedding->chunks.size(), 2u);
}

TEST(FsdpRanks, OfTensorParallelModulesAMissingRankIsNamed) {
  auto files = test::files_below("verl/tp" + kActor);
  files.erase("model_world_size_4_rank_2.pt");
  EXPECT_THAT(refusal(files, ErrorKind::not_found), HasSubstr("rank 2 of 4"));
}

TEST(FsdpRanks, StridesOverOtherAxesAreRefused) {
  auto files = test::files_below("verl/tp" + kActor);
  for (auto& [name, content] : files) {
    const size_t at = content.find("split_factor");
    if (at == std::string::npos) continue;
    const size_t value = content.find("K\x02", at);
    ASSERT_LT(value, at + 24);
    content[value + 1] = 3;
  }
  EXPECT_THAT(refusal(files, ErrorKind::unsupported), HasSubstr("_StridedShard over 3 parts"));
}

TEST(FsdpRanks, AreFoundInARun) {
  for (const std::string iteration : {"", "1", "global_step_1"}) {
    OpenOptions options;
    options.iteration = iteration;
    const auto checkpoint = open_checkpoint(posix_file_system(), kForeign + "verl/fsdp2", options);
    EXPECT_EQ(checkpoint.path, kForeign + "verl/fsdp2" + kActor);
  }
  OpenOptions none;
  none.iteration = "7";
  EXPECT_THROW(open_checkpoint(posix_file_system(), kForeign + "verl/fsdp2", none), Error);
}

// Accelerate's files, by its own code (tests/interop/fixtures/make_trainer.py): of FSDP 2 DTensors,
// of FSDP 1 ShardedTensors.
TEST(FsdpRanks, OfAccelerateAreJoined) {
  for (const std::string name : {"accelerate_ranks", "fsdp1_sharded"}) {
    const Checkpoint checkpoint =
        open_checkpoint(posix_file_system(), kForeign + "training/" + name);
    EXPECT_EQ(checkpoint.format, Format::fsdp);
    EXPECT_EQ(checkpoint.layout.world_size, 2);
    EXPECT_EQ(contents(checkpoint.catalog, Role::model),
              test::truth("training/" + name + ".safetensors", false));
    auto files = test::files_below("training/" + name);
    files.erase("pytorch_model_fsdp_0_rank1.bin");
    EXPECT_THAT(refusal(files, ErrorKind::not_found), HasSubstr("further ranks are missing"));
    files["pytorch_model_fsdp_1_rank1.bin"] = files["pytorch_model_fsdp_0_rank0.bin"];
    EXPECT_THAT(refusal(files, ErrorKind::invalid), HasSubstr("several models"));
    EXPECT_LT(test::survivors(test::files_below("training/" + name), 300, 2), 300);
  }
}

TEST(FsdpRanks, FlattenedParametersAreReported) {
  const Checkpoint checkpoint =
      open_checkpoint(posix_file_system(), kForeign + "training/fsdp1_local");
  ASSERT_EQ(checkpoint.notes.size(), 1u);
  EXPECT_THAT(checkpoint.notes[0], HasSubstr("SHARDED_STATE_DICT"));
  ASSERT_NE(checkpoint.catalog->find("_flat_param"), nullptr);
  EXPECT_EQ(checkpoint.catalog->find("_flat_param")->shape, Dims{1328});
}

TEST(FsdpRanks, GroupsAndStepsAreReported) {
  const Checkpoint checkpoint =
      open_checkpoint(posix_file_system(), kForeign + "verl/fsdp2" + kActor);
  EXPECT_EQ(checkpoint.optimizer_steps, 1);
  EXPECT_EQ(checkpoint.param_groups.value[0].get("lr").real(), 1e-3);
}

TEST(FsdpRanks, AMissingRankIsNamed) {
  auto files = two_ranks();
  files.erase("model_world_size_2_rank_1.pt");
  const std::string message = refusal(files, ErrorKind::not_found);
  EXPECT_THAT(message, HasSubstr("rank 1 of 2"));
  EXPECT_THAT(message, HasSubstr("tensor model.embed_tokens.weight"));
}

// Ranks 2 and 3 of the mesh hold what 0 and 1 hold.
TEST(FsdpRanks, AMissingCopyIsNotMissed) {
  auto files = test::files_below("verl/hsdp" + kActor);
  files.erase("model_world_size_4_rank_2.pt");
  files.erase("model_world_size_4_rank_3.pt");
  const auto ranks = open_fsdp_ranks(test::in_memory(files, "x"), "x");
  EXPECT_EQ(contents(ranks.catalog, Role::model), test::truth("verl/hsdp.safetensors", false));
  files.erase("model_world_size_4_rank_1.pt");
  refusal(files, ErrorKind::not_found);
}

TEST(FsdpRanks, ARankInTheWrongPlaceIsRefused) {
  auto files = two_ranks();
  files["model_world_size_2_rank_1.pt"] = files["model_world_size_2_rank_0.pt"];
  EXPECT_THAT(refusal(files, ErrorKind::corrupt), HasSubstr("overlap"));
}

TEST(FsdpRanks, OfTwoSavesAreRefused) {
  auto files = two_ranks();
  files["model_world_size_4_rank_0.pt"] = files["model_world_size_2_rank_0.pt"];
  EXPECT_THAT(refusal(files, ErrorKind::invalid), HasSubstr("of 2 and of 4 ranks"));
}

// A rank's files left over from the save before, which have the same names and shapes.
TEST(FsdpRanks, OfDifferentSavesAreRefusedByTheirSteps) {
  auto files = two_ranks();
  std::string& optimizer = files["optim_world_size_2_rank_1.pt"];
  ASSERT_GT(test::replace_all(optimizer, {"\0\0\x80\x3f", 4}, {"\0\0\0\x40", 4}), 0);  // 1, 2
  EXPECT_THAT(refusal(files, ErrorKind::corrupt),
              AllOf(HasSubstr("optim_world_size_2_rank_0.pt was saved after 1 steps"),
                    HasSubstr("optim_world_size_2_rank_1.pt after 2")));
  files = test::files_below("verl/tp" + kActor);
  std::string& schedule = files["extra_state_world_size_4_rank_3.pt"];
  const size_t at = schedule.find("K\x05", schedule.find("last_epoch"));
  ASSERT_NE(at, std::string::npos);
  schedule[at + 1] = 4;
  EXPECT_THAT(refusal(files, ErrorKind::corrupt),
              HasSubstr("extra_state_world_size_4_rank_3.pt after 4"));
}

TEST(FsdpRanks, OptimizerStateThatCannotBeReadIsReported) {
  auto files = two_ranks();
  files["optim_world_size_2_rank_1.pt"].resize(100);
  const auto ranks = open_fsdp_ranks(test::in_memory(files, "x"), "x");
  EXPECT_THAT(ranks.optimizer_problem, HasSubstr("optim_world_size_2_rank_1.pt"));
  EXPECT_EQ(contents(ranks.catalog, Role::model), test::truth("verl/fsdp2.safetensors", false));
  EXPECT_TRUE(contents(ranks.catalog, Role::optimizer).empty());
}

TEST(FsdpRanks, DamageIsAnError) {
  auto files = two_ranks();
  std::erase_if(files, [](const auto& file) { return !file.first.starts_with("model_"); });
  EXPECT_LT(test::survivors(files, 600, 1), 600);
}

}  // namespace
}  // namespace ferry
