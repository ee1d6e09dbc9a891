// Legacy rank folders: what surrounds the tensors (their content: optimizer_state_test.cpp).
#include "ckpt/megatron/rank_folders/rank_folders.h"

#include <gmock/gmock.h>

#include "ckpt/base/error.h"
#include "ckpt/format/torch/objects.h"
#include "ckpt/megatron/rank_folders/folder_names.h"
#include "ckpt/megatron/rank_folders/rank.h"
#include "tests/io/memory_file_system.h"

namespace ferry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kFolder =
    std::string(FERRY_FIXTURES) + "/megatron/llama_legacy_tp2pp2/iter_0000005";

std::shared_ptr<MemoryFileSystem> copy_of_fixture() {
  auto memory = std::make_shared<MemoryFileSystem>();
  const auto files = posix_file_system();
  for (const std::string& rank : files->list(kFolder)) {
    for (const std::string& name : files->list(join(kFolder, rank))) {
      const std::string path = join(rank, name);
      memory->put(join("ckpt", path), read_file(*files, join(kFolder, path), 1 << 24));
    }
  }
  return memory;
}

std::string message_of(const std::function<void()>& action, ErrorKind kind) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

TEST(Legacy, HasArgsIterationLayoutAndObjects) {
  const Checkpoint checkpoint = open_legacy(posix_file_system(), kFolder);
  EXPECT_EQ(checkpoint.format, Format::megatron_torch);
  EXPECT_EQ(checkpoint.iteration, 5);
  EXPECT_EQ(checkpoint.layout.tensor, 2);
  EXPECT_EQ(checkpoint.layout.pipeline, 2);
  EXPECT_EQ(checkpoint.args.value.get("num_layers").integer(), 4);
  const Object* scheduler = checkpoint.catalog->find_object("opt_param_scheduler");
  ASSERT_NE(scheduler, nullptr);
  EXPECT_TRUE(read_object(checkpoint.catalog, *scheduler).value.has("max_lr"));
  const Object* optimizer = checkpoint.catalog->find_object("optimizer");
  ASSERT_NE(optimizer, nullptr);
  const LoadedValue state = read_object(checkpoint.catalog, *optimizer);
  EXPECT_EQ(state.value.get("optimizer").get("param_groups")[0].get("step").integer(), 5);
  for (const char* name : {"rng_state/shard_0.0_2.2", "rng_state/shard_1.1_2.2"}) {
    const Object* object = checkpoint.catalog->find_object(name);
    ASSERT_NE(object, nullptr) << name;
    EXPECT_TRUE(read_object(checkpoint.catalog, *object).value[0].has("torch_rng_state"));
  }
}

TEST(Legacy, NamesMissingRanks) {
  const auto files = copy_of_fixture();
  EXPECT_NO_THROW(open_legacy(files, "ckpt"));
  files->remove_all("ckpt/mp_rank_01_000");
  EXPECT_THAT(message_of([&] { open_legacy(files, "ckpt"); }, ErrorKind::not_found),
              HasSubstr("1 of 4 ranks lack model_optim_rng.pt: mp_rank_01_000"));
}

TEST(Legacy, LeavesTheOptimizerOutWhenARankLacksIt) {
  const auto files = copy_of_fixture();
  files->remove_all("ckpt/mp_rank_01_000/distrib_optim.pt");
  const Checkpoint checkpoint = open_legacy(files, "ckpt");
  EXPECT_THAT(checkpoint.optimizer_problem, HasSubstr("mp_rank_01_000"));
  for (const Entry& entry : checkpoint.catalog->entries) EXPECT_EQ(entry.role, Role::model);
}

// Removed for all ranks: then only the arguments say that there was one.
TEST(Legacy, AnOptimizerThatWasSavedAndIsGoneIsDamage) {
  for (const size_t lost : {1u, 4u}) {
    const auto files = copy_of_fixture();
    std::vector<std::string> ranks = files->list("ckpt");
    ranks.resize(lost);
    for (const std::string& rank : ranks) files->remove_all("ckpt/" + rank + "/distrib_optim.pt");
    const Checkpoint checkpoint = open_legacy(files, "ckpt");
    EXPECT_THAT(
        checkpoint.optimizer_problem,
        HasSubstr(fmt::format("{} of 4 ranks lack distrib_optim.pt: mp_rank_00_000", lost)));
    EXPECT_THAT(checkpoint.damage, ElementsAre(checkpoint.optimizer_problem));
  }
  EXPECT_THAT(open_legacy(copy_of_fixture(), "ckpt").damage, ElementsAre());
}

// Swapped tensor ranks, swapped stages, a copy: every shape fits, and the model would be another.
TEST(Legacy, FilesOfOtherRanksAreDamage) {
  const auto file = [](const std::string& rank) { return "ckpt/" + rank + "/model_optim_rng.pt"; };
  for (const auto& [a, b] : {std::pair{"mp_rank_00_000", "mp_rank_01_000"},
                             std::pair{"mp_rank_00_001", "mp_rank_01_001"}}) {
    const auto files = copy_of_fixture();
    const std::string of_a = files->get(file(a)), of_b = files->get(file(b));
    files->put(file(a), of_b);
    EXPECT_THAT(open_legacy(files, "ckpt").damage, ElementsAre(HasSubstr(a))) << a;
    files->put(file(b), of_a);
    const Checkpoint swapped = open_legacy(files, "ckpt");
    EXPECT_THAT(swapped.damage, ElementsAre(HasSubstr(a), HasSubstr(b)));
    EXPECT_THAT(swapped.notes, testing::IsSupersetOf(swapped.damage));
  }
}

TEST(Legacy, RanksAreCountedAsMegatronDoes) {
  RunArguments run;
  run.tensor = run.expert_tensor = 2;
  run.pipeline = 2;
  run.world_size = 8;
  const auto first_ranks = [&] {
    std::vector<int64_t> ranks;
    for (const RankFolder& folder : expected_rank_folders(run)) ranks.push_back(folder.first_rank);
    return ranks;
  };
  EXPECT_THAT(first_ranks(), ElementsAre(0, 1, 4, 5));
  run.stages_before_data = true;
  EXPECT_THAT(first_ranks(), ElementsAre(0, 1, 2, 3));

  run.stages_before_data = false;
  const std::vector<RankFolder> folders = expected_rank_folders(run);
  std::vector<RankOrigin> origins(4);
  const auto found = [&](std::vector<int64_t> ranks) {
    for (size_t i = 0; i < 4; ++i) origins[i].rank = ranks[i];
    return contradictions(folders, origins, run).size();
  };
  EXPECT_EQ(found({0, 1, 4, 5}), 0u);
  EXPECT_EQ(found({2, 3, 6, 7}), 0u);  // other data-parallel ranks may have written
  EXPECT_EQ(found({0, 3, 4, 4}), 1u);
  EXPECT_EQ(found({4, 5, 0, 1}), 4u);
  EXPECT_EQ(found({0, 0, 0, 0}), 0u);  // of a tool that converts
  origins[3].of_run[0] = 5;
  origins[0].of_run[0] = 6;
  EXPECT_THAT(contradictions(folders, origins, run),
              ElementsAre(HasSubstr("says iteration 5, mp_rank_00_000/model_optim_rng.pt says 6")));
}

TEST(Legacy, ReportsFoldersThatAreNotTheRuns) {
  const auto files = copy_of_fixture();
  files->put("ckpt/mp_rank_02_000/model_optim_rng.pt", "x");
  const Checkpoint checkpoint = open_legacy(files, "ckpt");
  EXPECT_THAT(checkpoint.notes, ElementsAre(HasSubstr("mp_rank_02_000")));
}

TEST(Legacy, RanksThatDoNotFitAreAMismatch) {
  const auto files = copy_of_fixture();
  files->put("ckpt/mp_rank_00_001/model_optim_rng.pt",
             files->get("ckpt/mp_rank_00_000/model_optim_rng.pt"));
  EXPECT_THAT(message_of([&] { open_legacy(files, "ckpt"); }, ErrorKind::mismatch),
              HasSubstr("mp_rank_00_001"));
}

TEST(Legacy, EveryTruncationIsAnError) {
  const auto files = copy_of_fixture();
  const std::string path = "ckpt/mp_rank_00_000/model_optim_rng.pt";
  const std::string whole = files->get(path);
  for (size_t length = 0; length < whole.size(); length += 997) {
    files->put(path, whole.substr(0, length));
    EXPECT_THROW(open_legacy(files, "ckpt"), Error) << length;
  }
}

TEST(Legacy, RawShowsEveryRankByItself) {
  const Checkpoint checkpoint = open_legacy(posix_file_system(), kFolder, true);
  const Entry* qkv = checkpoint.catalog->find(
      "mp_rank_01_001/model_optim_rng.pt:model.decoder.layers.0.self_attention.linear_qkv.weight");
  ASSERT_NE(qkv, nullptr);
  EXPECT_EQ(qkv->shape, (Dims{32, 32}));
  EXPECT_NE(checkpoint.catalog->find(
                "mp_rank_00_000/distrib_optim.pt:0.(torch.bfloat16, torch.float32).exp_avg"),
            nullptr);
  EXPECT_NE(checkpoint.catalog->find_object("mp_rank_00_000/model_optim_rng.pt:args"), nullptr);
}

TEST(RankFolders, AreNamedByTheRunsSizes) {
  EXPECT_TRUE(is_rank_folder_name("mp_rank_00"));
  EXPECT_TRUE(is_rank_folder_name("mp_rank_00_001_002"));
  EXPECT_FALSE(is_rank_folder_name("mp_rank_"));
  EXPECT_FALSE(is_rank_folder_name("mp_rank_00_"));
  EXPECT_FALSE(is_rank_folder_name("mp_rank_00_001_002_003"));
  EXPECT_FALSE(is_rank_folder_name("mp_rank_0a"));
  RunArguments run;
  run.tensor = run.expert_tensor = 2;
  run.expert = 2;
  run.experts = 4;
  std::vector<std::string> names;
  for (const RankFolder& folder : expected_rank_folders(run)) {
    names.push_back(folder.name + (folder.gives_dense ? "d" : "") +
                    (folder.gives_experts ? "e" : ""));
  }
  EXPECT_THAT(names, ElementsAre("mp_rank_00_000de", "mp_rank_01_000de", "mp_rank_00_001e",
                                 "mp_rank_01_001e"));
  run.expert_tensor = 1;  // tensor rank and expert rank rise together
  names.clear();
  for (const RankFolder& folder : expected_rank_folders(run)) names.push_back(folder.name);
  EXPECT_THAT(names, ElementsAre("mp_rank_00_000", "mp_rank_01_001"));
  run.tensor = 1;
  run.expert_tensor = 2;  // both halves of an expert in one folder
  EXPECT_THROW(expected_rank_folders(run), Error);
}

}  // namespace
}  // namespace ferry
