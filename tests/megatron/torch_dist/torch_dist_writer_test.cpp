// Checkpoints of the peers, written again at other layouts and read back.
#include "ckpt/megatron/torch_dist/torch_dist_writer.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>

#include "ckpt/base/error.h"
#include "ckpt/checkpoint.h"
#include "ckpt/format/torch/objects.h"
#include "ckpt/megatron/model/run_arguments.h"
#include "ckpt/megatron/state/edit.h"
#include "tests/megatron/reshard_support.h"

namespace ferry {
namespace {

using test::fixture;
using testing::Contains;
using testing::HasSubstr;

Checkpoint open_fixture(const std::string& name) {
  return open_checkpoint(posix_file_system(), fixture("megatron/" + name));
}

ParallelTarget sizes(int64_t tensor, int64_t pipeline, int64_t expert = 1) {
  ParallelTarget target;
  target.tensor = tensor;
  target.pipeline = pipeline;
  target.expert = expert;
  return target;
}

struct WriterCase {
  std::string name;
  ParallelTarget target;
};

ParallelTarget interleaved() {
  ParallelTarget target = sizes(2, 2);
  target.virtual_pipeline = 2;
  return target;
}

ParallelTarget uneven() {
  ParallelTarget target = sizes(1, 3);
  target.first_stage_layers = 1;
  target.last_stage_layers = 1;
  return target;
}

ParallelTarget lettered() {
  ParallelTarget target = sizes(1, 2);
  target.stage_letters = "Et|t|t|tL";
  return target;
}

ParallelTarget expert_tensor() {
  ParallelTarget target = sizes(2, 1, 2);
  target.expert_tensor = 2;
  return target;
}

class Reshard : public testing::TestWithParam<WriterCase> {};

TEST_P(Reshard, KeepsEveryTensor) {
  const auto memory = std::make_shared<MemoryFileSystem>();
  const Checkpoint source = open_fixture(GetParam().name);
  const Checkpoint target = test::reshard(source, GetParam().target, memory, "iter_0000005");
  test::expect_truth(target, GetParam().name);
  EXPECT_EQ(target.optimizer, OptimizerLayout::fully_reshardable);
  EXPECT_EQ(target.iteration, 5);
  const ParallelTarget& requested = GetParam().target;
  EXPECT_EQ(target.layout.tensor, *requested.tensor);
  EXPECT_EQ(target.layout.pipeline, *requested.pipeline);
  // And back to where it was, in flat buckets, and from these.
  TorchDistOptions flat;
  flat.optimizer = ShardedOptimizer::dp_reshardable;
  const Checkpoint back = test::reshard(target, sizes(source.layout.tensor, source.layout.pipeline),
                                        memory, "back", flat);
  EXPECT_EQ(back.optimizer, OptimizerLayout::dp_reshardable);
  test::expect_truth(back, GetParam().name);
  test::expect_truth(test::reshard(back, GetParam().target, memory, "again"), GetParam().name);
}

INSTANTIATE_TEST_SUITE_P(
    Peers, Reshard,
    testing::Values(
        WriterCase{"llama_tp2dp2_dpr", sizes(1, 1)}, WriterCase{"llama_tp2dp2_dpr", sizes(2, 1)},
        WriterCase{"llama_tp2dp2_dpr", sizes(1, 2)}, WriterCase{"llama_tp2dp2_dpr", sizes(4, 1)},
        WriterCase{"llama_tp2dp2_dpr", sizes(4, 4)}, WriterCase{"llama_tp2dp2_dpr", interleaved()},
        WriterCase{"llama_tp2dp2_dpr", uneven()}, WriterCase{"llama_tp2dp2_dpr", lettered()},
        WriterCase{"llama_te_tp2dp2_dpr", sizes(4, 2)}, WriterCase{"llama_pp2vpp", sizes(2, 4)},
        WriterCase{"llama_dp4_dpr_buckets", sizes(2, 2)}, WriterCase{"qwen2_pp2", sizes(2, 4)},
        WriterCase{"swiss_llama_tp2pp2", sizes(1, 1)},
        WriterCase{"llama_legacy_tp2pp2", sizes(4, 1)},
        WriterCase{"qwen3moe_te_ep2pp2_dpr", sizes(1, 1, 1)},
        WriterCase{"qwen3moe_te_ep2pp2_dpr", sizes(2, 2, 4)},
        WriterCase{"qwen3moe_te_ep2pp2_dpr", expert_tensor()}));

// The keys of a checkpoint as stored, tensors with their chunks.
std::map<std::string, std::vector<std::string>> stored_keys(const Checkpoint& raw) {
  std::map<std::string, std::vector<std::string>> keys;
  for (const Entry& entry : raw.catalog->entries) {
    auto& chunks = keys[entry.name];
    for (const Chunk& chunk : entry.chunks) chunks.push_back(to_string(chunk.box));
    std::sort(chunks.begin(), chunks.end());
  }
  for (const Object& object : raw.catalog->objects) keys[object.name];
  return keys;
}

class SameLayout : public testing::TestWithParam<std::string> {};

TEST_P(SameLayout, HasTheKeysAndChunksOfThePeersOwnSave) {
  const auto memory = std::make_shared<MemoryFileSystem>();
  const Checkpoint source = open_fixture(GetParam());
  test::reshard(source, {}, memory, "iter_0000005");
  OpenOptions raw;
  raw.raw = true;
  const auto ours = stored_keys(open_checkpoint(memory, "iter_0000005", raw));
  const auto theirs =
      stored_keys(open_checkpoint(posix_file_system(), fixture("megatron/" + GetParam()), raw));
  for (const auto& [key, chunks] : theirs) {
    if (key.find("optimizer.distributed.") != std::string::npos) continue;
    ASSERT_TRUE(ours.contains(key)) << key;
    EXPECT_EQ(ours.at(key), chunks) << key;
  }
  for (const auto& [key, chunks] : ours) {
    EXPECT_TRUE(theirs.contains(key) || key.starts_with("optimizer.state.")) << key;
  }
}

INSTANTIATE_TEST_SUITE_P(Peers, SameLayout,
                         testing::Values("llama_tp2dp2_dpr", "llama_te_tp2dp2_dpr", "llama_pp2vpp",
                                         "llama_dp4_dpr_buckets", "qwen2_pp2",
                                         "qwen3moe_te_ep2pp2_dpr", "hot_llama", "hot_gpt2",
                                         "hot_deepseek", "hot_mixtral", "hot_qwen2",
                                         "hot_nemotron3_mtp", "hot_qwen3next_mtp"));

// A member of the common state of a written checkpoint.
LoadedValue member(const Checkpoint& checkpoint, std::string_view name) {
  const Object* object = checkpoint.catalog->find_object(name);
  EXPECT_NE(object, nullptr) << name;
  return object ? read_object(checkpoint.catalog, *object) : LoadedValue{};
}

TEST(TorchDistWriter, CarriesTheCommonStateOver) {
  const auto memory = std::make_shared<MemoryFileSystem>();
  const Checkpoint source = open_fixture("llama_tp2dp2_dpr");
  const Checkpoint target = test::reshard(source, sizes(1, 2), memory, "iter_0000005");
  for (const char* name : {"opt_param_scheduler", "num_floating_point_operations_so_far"}) {
    EXPECT_EQ(to_json(member(target, name).value), to_json(member(source, name).value)) << name;
  }
  EXPECT_EQ(member(target, "checkpoint_version").value.real(), 3.0);
  EXPECT_EQ(target.args.value.get("consumed_train_samples").integer(), 40);
  EXPECT_EQ(target.args.value.get("dist_ckpt_optim_fully_reshardable").boolean(), true);
  EXPECT_EQ(target.metadata.value.get("distrib_optim_sharding_type").string(), "fully_reshardable");
  const LoadedValue optimizer = member(target, "optimizer");
  EXPECT_EQ(optimizer.value.get("param_state_sharding_type").string(), "fully_reshardable");
  const Value groups = optimizer.value.get("optimizer").get("param_groups");
  ASSERT_EQ(groups.size(), 2);
  EXPECT_EQ(groups[0].get("step").integer(), 5);
  EXPECT_EQ(groups[1].get("wd_mult").real(), 0.0);
}

TEST(TorchDistWriter, NumbersTheOptimizersOfAMixtureOfExperts) {
  const auto memory = std::make_shared<MemoryFileSystem>();
  const Checkpoint source = open_fixture("qwen3moe_te_ep2pp2_dpr");
  const Checkpoint apart = test::reshard(source, sizes(1, 1, 4), memory, "apart");
  const LoadedValue two = member(apart, "optimizer");
  ASSERT_EQ(two.value.pair_count(), 2);
  EXPECT_EQ(two.value.pair_key(1).integer(), 1);
  const auto groups_of = [](const Value& state) {
    return state.get("optimizer").get("param_groups");
  };
  EXPECT_EQ(groups_of(two.value.pair_value(1)).size(), 1);
  EXPECT_EQ(groups_of(two.value.pair_value(1))[0].get("is_expert_parallel").boolean(), true);
  const Checkpoint together = test::reshard(apart, sizes(1, 1, 1), memory, "together");
  EXPECT_EQ(groups_of(member(together, "optimizer").value).size(), 2);
  const Checkpoint again = test::reshard(together, sizes(1, 1, 4), memory, "again");
  EXPECT_EQ(to_json(member(again, "optimizer").value), to_json(two.value));
}

std::vector<std::string> object_names(const Checkpoint& checkpoint, std::string_view prefix) {
  std::vector<std::string> names;
  for (const Object& object : checkpoint.catalog->objects) {
    if (object.name.starts_with(prefix)) names.push_back(object.name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST(TorchDistWriter, KeepsRandomNumbersOfTheirGridOnly) {
  const auto memory = std::make_shared<MemoryFileSystem>();
  const Checkpoint source = open_fixture("llama_tp2dp2_dpr");
  const std::vector<std::string> own = object_names(source, "rng_state/");
  ASSERT_EQ(own, (std::vector<std::string>{"rng_state/shard_0.0_1.2", "rng_state/shard_0.1_1.2"}));
  const Checkpoint same = test::reshard(source, {}, memory, "same");
  EXPECT_TRUE(same.args.value.get("no_save_rng").is_none());
  EXPECT_EQ(object_names(same, "rng_state/"), own);
  const Checkpoint other = test::reshard(source, sizes(1, 2), memory, "other");
  EXPECT_EQ(other.args.value.get("no_save_rng").boolean(), true);
  EXPECT_EQ(object_names(other, "rng_state/"), own);  // for the way back
  const Checkpoint back = test::reshard(other, sizes(2, 1), memory, "back");
  EXPECT_TRUE(back.args.value.get("no_save_rng").is_none());
  const auto state_of_rank = [](const Checkpoint& checkpoint) {
    const Object* object = checkpoint.catalog->find_object("rng_state/shard_0.1_1.2");
    return read_object_with_storages(checkpoint.catalog, *object);
  };
  const LoadedValue before = state_of_rank(source), after = state_of_rank(back);
  EXPECT_EQ(to_json(after.value), to_json(before.value));
  const auto tracker = [](const LoadedValue& rng) {
    const Value state = rng.value[0][0].get("rng_tracker_states").get("model-parallel-rng");
    return rng.document->storages.find(state.tensor()->storage_key)->second;
  };
  EXPECT_EQ(tracker(after), tracker(before));
}

TEST(TorchDistWriter, KeepsTheRerunStateOfTheSameRanksOnly) {
  const auto memory = std::make_shared<MemoryFileSystem>();
  const Checkpoint source = open_fixture("llama_tp2dp2_dpr");
  const Checkpoint same = test::reshard(source, {}, memory, "same");
  EXPECT_EQ(object_names(same, "rerun_state_machine_state/").size(), 4);
  EXPECT_NE(same.catalog->find_object("rerun_state_machine"), nullptr);
  const Checkpoint other = test::reshard(source, sizes(1, 1), memory, "other");
  EXPECT_TRUE(object_names(other, "rerun_state_machine").empty());
}

TEST(TorchDistWriter, LeavesTheOptimizerOutOnRequest) {
  const auto memory = std::make_shared<MemoryFileSystem>();
  TorchDistOptions options;
  options.optimizer = ShardedOptimizer::none;
  const Checkpoint target =
      test::reshard(open_fixture("llama_tp2dp2_dpr"), sizes(1, 1), memory, "iter_0000005", options);
  EXPECT_EQ(target.optimizer, OptimizerLayout::none);
  EXPECT_EQ(target.args.value.get("no_save_optim").boolean(), true);
  EXPECT_EQ(target.catalog->find_object("optimizer"), nullptr);
}

TEST(TorchDistWriter, WritesForOlderReleases) {
  const auto memory = std::make_shared<MemoryFileSystem>();
  const Checkpoint source = open_fixture("llama_tp2dp2_dpr");
  TorchDistOptions options;
  options.release = parse_core_release("0.16");
  const Checkpoint target = test::reshard(source, sizes(1, 1), memory, "iter_0000005", options);
  test::expect_truth(target, "llama_tp2dp2_dpr");
  EXPECT_EQ(memory->status("iter_0000005/common.pt").kind, PathKind::file);
  EXPECT_THAT(memory->get("iter_0000005/metadata.json"), HasSubstr("common_backend"));
  const Value backend = source.args.value.get("attention_backend");
  EXPECT_EQ(backend.kind(), ValueKind::object);  // of a class that an older release may not have
  EXPECT_EQ(target.args.value.get("attention_backend").kind(), ValueKind::integer);
  OpenOptions raw;
  raw.raw = true;
  const Checkpoint as_stored = open_checkpoint(memory, "iter_0000005", raw);
  EXPECT_EQ(as_stored.catalog->find_object("common_state/shard_0_1"), nullptr);
  options.release = parse_core_release("0.14");
  EXPECT_THROW(test::reshard(source, {}, memory, "old", options), Error);
  options.optimizer = ShardedOptimizer::none;
  EXPECT_NO_THROW(test::reshard(source, {}, memory, "old", options));
}

TEST(TorchDistWriter, SharesQueryGroupsWhereTheReleaseCan) {
  const auto memory = std::make_shared<MemoryFileSystem>();
  const Checkpoint source = open_fixture("llama_tp2dp2_dpr");  // 2 query groups
  TorchDistOptions options;
  options.release = parse_core_release("0.15");
  try {
    test::reshard(source, sizes(4, 1), memory, "old", options);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("2 query groups cannot be split over 4"));
    EXPECT_THAT(error.what(), HasSubstr("for options.tensor, 1 and 2 fit; or write for 0.16"));
  }
  EXPECT_NO_THROW(test::reshard(source, sizes(2, 1), memory, "fits", options));
  options.release = parse_core_release("0.16");
  EXPECT_NO_THROW(test::reshard(source, sizes(4, 1), memory, "newer", options));
}

TEST(TorchDistWriter, MakesExtraStatesWhereThereAreNone) {
  const auto memory = std::make_shared<MemoryFileSystem>();
  const Checkpoint target =
      test::reshard(open_fixture("llama_legacy_tp2pp2"), {}, memory, "iter_0000005");
  for (const char* name : {"decoder.layers.self_attention.linear_proj._extra_state/shard_3_4",
                           "decoder.layers.mlp.linear_fc1._extra_state/shard_0_4",
                           "decoder.layers.self_attention.core_attention._extra_state/shard_1_4",
                           "decoder.final_layernorm._extra_state/shard_0_1"}) {
    const Object* object = target.catalog->find_object(name);
    ASSERT_NE(object, nullptr) << name;
    EXPECT_TRUE(read_object(target.catalog, *object).value[0].is_none());
  }
  const Checkpoint deepseek = open_fixture("hot_deepseek");
  RunState experts = state_of(deepseek);
  experts.objects.clear();
  const Checkpoint mixture = [&] {
    test::write(plan_torch_dist(std::move(experts), {}), memory, "experts");
    return open_checkpoint(memory, "experts");
  }();
  EXPECT_NE(mixture.catalog->find_object(
                "decoder.layers.3.mlp.experts.experts.linear_fc2._extra_state/shard_3_4"),
            nullptr);
}

// Megatron-LM does not load a run without one of them.
TEST(TorchDistWriter, MakesTheExtraStatesThatMegatronLmSaves) {
  for (const char* name : {"hot_llama", "hot_deepseek", "hot_mixtral", "hot_nemotron3_mtp"}) {
    const auto memory = std::make_shared<MemoryFileSystem>();
    const Checkpoint source = open_fixture(name);
    RunState state = state_of(source);
    state.objects.clear();
    test::write(plan_torch_dist(std::move(state), {}), memory, "iter_0000005");
    const Checkpoint target = open_checkpoint(memory, "iter_0000005");
    for (const Object& object : source.catalog->objects) {
      if (object.name.find("._extra_state/shard_") == std::string::npos) continue;
      EXPECT_NE(target.catalog->find_object(object.name), nullptr) << name << " " << object.name;
    }
  }
}

TEST(TorchDistWriter, StoresWholeWhatNobodyKnows) {
  const auto memory = std::make_shared<MemoryFileSystem>();
  const Checkpoint source = open_fixture("hot_llama");
  RunState state = state_of(source);
  rename_tensors(state, [](std::string_view name) {
    return name == "output_layer.weight" ? "vision.head" : std::string(name);
  });
  const PlannedOutput output = plan_torch_dist(std::move(state), {});
  EXPECT_THAT(output.warnings, Contains(HasSubstr("vision.head")));
  test::write(output, memory, "iter_0000005");
  const Checkpoint target = open_checkpoint(memory, "iter_0000005");
  EXPECT_EQ(
      test::hash_of(read_tensor(target.catalog, *target.catalog->find("vision.head"), 1 << 30)),
      test::truth_of("hot_llama")["output_layer.weight"]["xxh3_128"].get<std::string>());
}

TEST(TorchDistWriter, SharesCopiesOutOverDataRanks) {
  const Checkpoint source = open_fixture("llama_dp4_dpr_buckets");
  RunState state = state_of(source);
  retarget(state, {});
  const PlannedOutput output = plan_torch_dist(std::move(state), {});
  ASSERT_EQ(output.plan.target.files.size(), 4);
  const auto [least, most] =
      std::minmax_element(output.plan.target.files.begin(), output.plan.target.files.end(),
                          [](const FileInfo& a, const FileInfo& b) { return a.bytes < b.bytes; });
  EXPECT_LT(most->bytes, least->bytes * 2);
}

}  // namespace
}  // namespace ferry
