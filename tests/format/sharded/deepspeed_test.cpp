// DeepSpeed's checkpoints, which its own engine saved on a CPU
// (tests/interop/fixtures/make_deepspeed.py), against what its own zero_to_fp32 and ds_to_universal
// make of them.
#include "ckpt/format/deepspeed/deepspeed.h"

#include <gmock/gmock.h>

#include "ckpt/format/deepspeed/partitions.h"
#include "tests/format/sharded/sharded_files.h"

namespace ferry {
namespace {

using test::contents;
using test::kForeign;
using testing::HasSubstr;

const std::string kStep = "/global_step2";

Checkpoint open_zero(const std::string& name) {
  return open_checkpoint(posix_file_system(), kForeign + "ds/" + name);
}

std::string zero_refusal(const std::map<std::string, std::string>& files, ErrorKind kind) {
  try {
    open_deepspeed(test::in_memory(files, "x"), "x");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "was opened";
  return {};
}

class DeepSpeed : public testing::TestWithParam<std::string> {};

TEST_P(DeepSpeed, HoldsWhatItsOwnToolsGive) {
  const Checkpoint checkpoint = open_zero(GetParam());
  EXPECT_EQ(checkpoint.format, Format::deepspeed);
  EXPECT_EQ(checkpoint.iteration, 2);
  EXPECT_THAT(checkpoint.writer, HasSubstr("ZeRO stage " + GetParam().substr(4, 1)));
  const auto expected = test::truth("ds/" + GetParam() + ".safetensors", false);
  const auto found = contents(checkpoint.catalog, Role::model);
  EXPECT_EQ(found.size(), expected.size());
  for (const auto& [name, bytes] : expected) {
    ASSERT_TRUE(found.contains(name)) << name;
    EXPECT_EQ(found.at(name), bytes) << name;  // frozen ones in the model's type
  }
  for (const Entry& entry : checkpoint.catalog->entries) {
    EXPECT_NO_THROW(check_chunks(checkpoint.catalog, entry)) << entry.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Stages, DeepSpeed, testing::Values("zero2", "zero3", "zero3_frozen"));

// Universal checkpoints hold the same, and so show whether moments are where they belong.
TEST(DeepSpeedUniversal, HoldsWhatItWasMadeOf) {
  const Checkpoint zero = open_zero("zero2"), universal = open_zero("zero2_universal");
  EXPECT_THAT(universal.writer, HasSubstr("universal"));
  EXPECT_EQ(contents(universal.catalog, Role::model), contents(zero.catalog, Role::model));
  const auto moments = contents(universal.catalog, Role::optimizer);
  EXPECT_EQ(moments.size(), 2 * contents(zero.catalog, Role::model).size());
  EXPECT_EQ(moments, contents(zero.catalog, Role::optimizer));
}

TEST(DeepSpeedFiles, GroupsAndStepsAreReported) {
  for (const std::string name : {"zero2", "zero3", "zero2_universal"}) {
    const Checkpoint checkpoint = open_zero(name);
    EXPECT_EQ(checkpoint.optimizer_steps, 2) << name;
    const Value groups = checkpoint.param_groups.value;
    ASSERT_EQ(groups.size(), 2u) << name;
    EXPECT_EQ(groups[0].get("weight_decay").real(), 0.1);
    EXPECT_EQ(groups[1].get("weight_decay").real(), 0.0);
  }
}

TEST(DeepSpeedFiles, WhatIsMissingIsNamed) {
  const auto whole = test::files_below("ds/zero2" + kStep);
  const std::string optimizer = "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt";
  ASSERT_TRUE(whole.contains(optimizer));
  auto files = whole;
  files.erase(optimizer);
  EXPECT_THAT(zero_refusal(files, ErrorKind::not_found), HasSubstr("2 ranks wrote"));
  files = whole;
  files.erase("bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt");
  EXPECT_THAT(zero_refusal(files, ErrorKind::not_found), HasSubstr("rank 0"));
  files = whole;
  files.erase("mp_rank_00_model_states.pt");
  EXPECT_THAT(zero_refusal(files, ErrorKind::not_found), HasSubstr("*_model_states.pt"));
  files = whole;
  files["bf16_zero_pp_rank_2_mp_rank_00_optim_states.pt"] = files[optimizer];
  EXPECT_THAT(zero_refusal(files, ErrorKind::invalid), HasSubstr("several saves"));
  files = whole;
  files["mp_rank_01_model_states.pt"] = files["mp_rank_00_model_states.pt"];
  EXPECT_THAT(zero_refusal(files, ErrorKind::unsupported), HasSubstr("ds_to_universal"));
}

TEST(DeepSpeedFiles, WithoutTheOptimizerThereAreTheModelsOwnWeights) {
  auto files = test::files_below("ds/zero2" + kStep);
  std::erase_if(files, [](const auto& file) { return file.first.ends_with("_optim_states.pt"); });
  const auto opened = open_deepspeed(test::in_memory(files, "x"), "x");
  EXPECT_THAT(opened.notes, testing::Contains(HasSubstr("no *_optim_states.pt")));
  EXPECT_EQ(opened.catalog.find("model.norm.weight")->dtype, DType::bf16);
  files = test::files_below("ds/zero3" + kStep);
  std::erase_if(files, [](const auto& file) { return file.first.ends_with("_optim_states.pt"); });
  zero_refusal(files, ErrorKind::not_found);
}

TEST(DeepSpeedFiles, RanksInTheWrongPlacesAreOfOtherSizes) {
  auto files = test::files_below("ds/zero3" + kStep);
  std::string stage2;
  for (const auto& [name, content] : test::files_below("ds/zero2" + kStep)) {
    if (name.ends_with("_optim_states.pt")) stage2 = content;
  }
  files["bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"] = stage2;
  zero_refusal(files, ErrorKind::corrupt);
}

TEST(DeepSpeedFiles, OfDifferentSavesAreRefusedByTheirSteps) {
  for (const std::string name : {"zero2", "zero3"}) {
    auto files = test::files_below("ds/" + name + "/global_step2");
    std::string& rank = files["bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"];
    ASSERT_GT(test::replace_all(rank, {"\0\0\0\x40", 4}, {"\0\0\x40\x40", 4}), 0);  // 2, 3
    EXPECT_THAT(zero_refusal(files, ErrorKind::corrupt), HasSubstr("after 2 steps"));
  }
}

TEST(DeepSpeedFiles, DamageIsAnError) {
  EXPECT_LT(test::survivors(test::files_below("ds/zero2" + kStep), 300, 2), 300);
  EXPECT_LT(test::survivors(test::files_below("ds/zero3" + kStep), 300, 3), 300);
}

// Flat tensors of the sizes, one after another in file 0, of a rank.
std::vector<FlatTensor> flats(std::initializer_list<int64_t> sizes) {
  std::vector<FlatTensor> all;
  uint64_t at = 0;
  for (const int64_t size : sizes) {
    all.push_back({{0, at, static_cast<uint64_t>(size) * 4}, DType::f32, size});
    at += static_cast<uint64_t>(size) * 4;
  }
  return all;
}

TEST(Partitions, GapsAfterParametersAreSkipped) {
  const std::vector<ZeroGroup> groups = {{{"a", {3}, 1}, {"b", {2, 2}, 0}}};
  const FlatTensors ranks = {flats({4}), flats({4})};
  const auto entries = join_groups(groups, ranks, ranks, "", Role::model, "x");
  ASSERT_EQ(entries.size(), 2u);
  ASSERT_EQ(entries[1].chunks.size(), 1u);
  EXPECT_EQ(entries[1].chunks[0].extent.offset, 0u);  // of the second rank's file
}

TEST(Partitions, OfStage3MayEndInsideAParameter) {
  const std::vector<ZeroGroup> groups = {{{"a", {5}, 0}, {"b", {2}, 0}}};
  const FlatTensors ranks = {flats({2, 2}), flats({2, 2})};  // 3 and 1 elements of each
  const auto entries = join_parts(groups, ranks, "", Role::model, "x");
  ASSERT_EQ(entries[0].chunks.size(), 3u);
  EXPECT_EQ(entries[0].chunks[1].run_begin, 2);
  EXPECT_EQ(entries[0].chunks[1].run_count, 1);
  EXPECT_EQ(entries[0].chunks[2].run_begin, 3);
  EXPECT_EQ(entries[0].chunks[2].run_count, 2);  // the third is padding
  EXPECT_THROW(join_parts(groups, {flats({2}), flats({2})}, "", Role::model, "x"), Error);
  EXPECT_THROW(join_parts(groups, {flats({5}), flats({5})}, "", Role::model, "x"), Error);
}

}  // namespace
}  // namespace ferry
