// Rank folders: those that Megatron-LM wrote, made anew from what was read of them, and others at
// layouts and of layouts that the source did not have.
#include "ckpt/megatron/rank_folders/write/writer.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/megatron/rank_folders/rank_folders.h"
#include "tests/megatron/writer_support.h"
#include "tests/support.h"

namespace ferry {
namespace {

using test::fixture;
using testing::HasSubstr;

std::string iteration_folder(const std::string& name) {
  return fixture("megatron/" + name + "/iter_0000005");
}

LoadedValue member(const Catalog& catalog, const std::string& name) {
  return read_object_with_storages(catalog, *catalog.find_object(name));
}

// All that a legacy checkpoint holds.
RunState state_of_legacy(const Checkpoint& checkpoint) {
  RunState state = test::state_of_entries(checkpoint.catalog);
  state.args = checkpoint.args;
  state.iteration = checkpoint.iteration;
  state.modules = checkpoint.modules;
  for (const Object& object : checkpoint.catalog->objects) {
    int64_t numbers[4];
    if (std::sscanf(object.name.c_str(), "rng_state/shard_%ld.%ld_%ld.%ld", &numbers[0],
                    &numbers[1], &numbers[2], &numbers[3]) == 4) {
      state.rng.push_back({numbers[0], numbers[1], numbers[2], numbers[3],
                           member(checkpoint.catalog, object.name)});
    } else if (object.name == "optimizer") {
      LoadedValue optimizer = member(checkpoint.catalog, object.name);
      const Value stored = optimizer.value.get("optimizer").get("param_groups");
      Draft draft;
      const Value groups = draft.copy(stored);
      for (size_t i = 0; i < groups.size(); ++i) draft.remove(groups[i], "params");
      state.param_groups.push_back(std::move(draft).finish(groups));
    } else if (object.name != "args" && object.name != "iteration") {
      state.common.emplace_back(object.name, member(checkpoint.catalog, object.name));
    }
  }
  return state;
}

// The same arguments but for some.
LoadedValue with_arguments(const LoadedValue& args,
                           const std::vector<std::pair<std::string, int64_t>>& changes) {
  Draft draft;
  const Value copy = draft.copy(args.value);
  for (const auto& [name, number] : changes) draft.put(copy, name, draft.integer(number));
  return std::move(draft).finish(copy);
}

nlohmann::json json_of(const Catalog& catalog, const Object& object) {
  return to_json(read_object(catalog, object).value);
}

Catalog without_rng(Catalog raw) {
  std::erase_if(raw.entries, [](const Entry& entry) {
    return entry.name.find(":rng_state.") != std::string::npos;
  });
  return raw;
}

class PeersFolders : public testing::TestWithParam<std::string> {};

TEST_P(PeersFolders, ComeOutAsMegatronWroteThem) {
  const std::string folder = iteration_folder(GetParam());
  const Checkpoint checkpoint = open_legacy(posix_file_system(), folder);
  const RunState state = state_of_legacy(checkpoint);
  const PlannedOutput output = plan_legacy(state, {});
  EXPECT_TRUE(output.warnings.empty());
  const auto files = std::make_shared<MemoryFileSystem>();
  test::write(output, files, "out");

  const Checkpoint again = open_legacy(files, "out");
  EXPECT_EQ(again.optimizer, checkpoint.optimizer);
  EXPECT_EQ(again.optimizer_problem, "");
  EXPECT_EQ(again.modules, checkpoint.modules);
  test::expect_same_tensors(again.catalog, checkpoint.catalog);

  // File by file: the same tensors under the same names, and the same of all else.
  const Checkpoint raw = open_legacy(posix_file_system(), folder, true),
                   written = open_legacy(files, "out", true);
  test::expect_same_tensors(written.catalog, raw.catalog);
  for (const Object& object : raw.catalog->objects) {
    if (object.name.ends_with(":model.0")) continue;  // versions of modules' state dicts
    const Object* other = written.catalog->find_object(object.name);
    ASSERT_NE(other, nullptr) << object.name;
    EXPECT_TRUE(json_of(written.catalog, *other) == json_of(raw.catalog, object)) << object.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Megatron, PeersFolders,
                         testing::Values("llama_legacy_tp2pp2", "llama_legacy_tp2_nodo"),
                         [](const auto& param) { return param.param; });

TEST(LegacyWriter, GoesToOtherLayoutsAndBack) {
  const Checkpoint checkpoint =
      open_legacy(posix_file_system(), iteration_folder("llama_legacy_tp2pp2"));
  RunState state = state_of_legacy(checkpoint);
  state.args = with_arguments(checkpoint.args, {{"tensor_model_parallel_size", 1},
                                                {"tensor_parallel_num_weight_shards", 1},
                                                {"expert_tensor_parallel_size", 1},
                                                {"expert_tensor_parallel_num_weight_shards", 1},
                                                {"pipeline_model_parallel_size", 2},
                                                {"virtual_pipeline_model_parallel_size", 2},
                                                {"world_size", 4}});
  const PlannedOutput output = plan_legacy(state, {});
  EXPECT_THAT(output.warnings, testing::ElementsAre(HasSubstr("random number states")));
  const auto files = std::make_shared<MemoryFileSystem>();
  test::write(output, files, "there");
  const Checkpoint there = open_legacy(files, "there");
  EXPECT_EQ(files->list("there"), (std::vector<std::string>{"mp_rank_00_000", "mp_rank_00_001"}));
  EXPECT_EQ(there.optimizer, OptimizerLayout::legacy_distributed);
  test::expect_same_tensors(there.catalog, checkpoint.catalog);

  RunState back = state_of_legacy(there);
  back.args = checkpoint.args;
  test::write(plan_legacy(back, {}), files, "back");
  test::expect_same_tensors(
      without_rng(open_legacy(files, "back", true).catalog),
      without_rng(
          open_legacy(posix_file_system(), iteration_folder("llama_legacy_tp2pp2"), true).catalog));
}

TEST(LegacyWriter, WritesPlainStateWhereTheArgumentsSaySo) {
  const Checkpoint flat = open_legacy(posix_file_system(), iteration_folder("llama_legacy_tp2pp2"));
  const Checkpoint plain =
      open_legacy(posix_file_system(), iteration_folder("llama_legacy_tp2_nodo"));
  RunState state = state_of_legacy(flat);
  state.args = plain.args;
  const auto files = std::make_shared<MemoryFileSystem>();
  test::write(plan_legacy(state, {}), files, "out");
  const Checkpoint written = open_legacy(files, "out");
  EXPECT_EQ(written.optimizer, OptimizerLayout::plain);
  test::expect_same_tensors(written.catalog, flat.catalog);
  EXPECT_EQ(files->list("out/mp_rank_01"), std::vector<std::string>{"model_optim_rng.pt"});
}

TEST(LegacyWriter, LeavesTheOptimizerOut) {
  const Checkpoint checkpoint =
      open_legacy(posix_file_system(), iteration_folder("llama_legacy_tp2pp2"));
  LegacyOptions options;
  options.optimizer = false;
  const auto files = std::make_shared<MemoryFileSystem>();
  test::write(plan_legacy(state_of_legacy(checkpoint), options), files, "out");
  const Checkpoint written = open_legacy(files, "out");
  EXPECT_EQ(written.optimizer, OptimizerLayout::none);
  EXPECT_EQ(written.catalog->find_object("optimizer"), nullptr);
  EXPECT_EQ(written.args.value.get("no_save_optim").boolean(), true);
  EXPECT_EQ(written.args.value.get("no_save_rng").boolean(), std::nullopt);
}

int64_t seed_of(const Value& state) {
  const StoredTensor* tensor = state.tensor();
  int64_t seed = 0;
  std::memcpy(&seed, state.document()->storages.at(tensor->storage_key).data(), 8);
  return seed;
}

TEST(LegacyWriter, GivesNewRanksTheStreamsOfTheirSeeds) {
  const Checkpoint checkpoint =
      open_legacy(posix_file_system(), iteration_folder("llama_legacy_tp2pp2"));
  RunState state = state_of_legacy(checkpoint);
  state.args = with_arguments(checkpoint.args, {{"tensor_model_parallel_size", 4},
                                                {"expert_tensor_parallel_size", 4},
                                                {"pipeline_model_parallel_size", 4},
                                                {"world_size", 16}});
  const auto files = std::make_shared<MemoryFileSystem>();
  test::write(plan_legacy(state, {}), files, "out");
  const Checkpoint written = open_legacy(files, "out");
  const int64_t seed = *checkpoint.args.value.get("seed").integer();
  for (int64_t stage = 0; stage < 4; ++stage) {
    for (int64_t tensor = 0; tensor < 4; ++tensor) {
      const LoadedValue rng =
          member(written.catalog, fmt::format("rng_state/shard_{}.{}_4.4", stage, tensor));
      const Value trackers = rng.value[0].get("rng_tracker_states");
      const int64_t base = seed + 100 * stage;
      EXPECT_EQ(seed_of(rng.value[0].get("cuda_rng_state")), base);
      EXPECT_EQ(seed_of(trackers.get("data-parallel-rng")), base);
      EXPECT_EQ(seed_of(trackers.get("model-parallel-rng")), base + 2718 + tensor);
      EXPECT_EQ(seed_of(trackers.get("expert-parallel-rng")), base + 1024 + tensor);
    }
  }
}

TEST(LegacyWriter, SaysWhatItCannotWrite) {
  const Checkpoint checkpoint =
      open_legacy(posix_file_system(), iteration_folder("llama_legacy_tp2pp2"));
  const auto message = [](const RunState& state) {
    try {
      plan_legacy(state, {});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  RunState state = state_of_legacy(checkpoint);
  state.param_groups.clear();
  EXPECT_THAT(message(state), HasSubstr("parameter groups of 0 optimizers"));
  state = state_of_legacy(checkpoint);
  state.args = {};
  EXPECT_THAT(message(state), HasSubstr("no arguments"));
  state.args = with_arguments(checkpoint.args, {{"tensor_model_parallel_size", 3}});
  EXPECT_THAT(message(state), HasSubstr("cannot be split"));
}

}  // namespace
}  // namespace ferry
