// Every torch_dist checkpoint that the peers wrote, against what PyTorch reads from it.
#include "ckpt/megatron/torch_dist/torch_dist.h"

#include <gmock/gmock.h>

#include "ckpt/base/error.h"
#include "ckpt/engine/engine.h"
#include "ckpt/format/torch/objects.h"
#include "tests/support.h"

namespace ferry {
namespace {

using testing::ElementsAre;

Checkpoint open_fixture_run(const std::string& name, bool raw = false) {
  return open_torch_dist(posix_file_system(), test::fixture("megatron/" + name + "/iter_0000005"),
                         raw);
}

class ModelOnly : public testing::TestWithParam<std::string> {};

TEST_P(ModelOnly, EveryTensorIsWhatPyTorchReads) {
  const Checkpoint checkpoint = open_fixture_run(GetParam());
  const auto truth = test::truth_of(GetParam());
  EXPECT_EQ(checkpoint.catalog->entries.size(), truth.size());
  for (const Entry& entry : checkpoint.catalog->entries) {
    ASSERT_TRUE(truth.contains(entry.name)) << entry.name;
    const auto& expected = truth[entry.name];
    EXPECT_EQ(torch_name(entry.dtype), expected["dtype"].get<std::string>()) << entry.name;
    EXPECT_EQ(entry.shape, expected["shape"].get<Dims>()) << entry.name;
    EXPECT_EQ(test::hash_of(read_tensor(checkpoint.catalog, entry, 1 << 30)),
              expected["xxh3_128"].get<std::string>())
        << entry.name;
    EXPECT_EQ(entry.role, Role::model) << entry.name;
  }
  EXPECT_EQ(checkpoint.optimizer, OptimizerLayout::none);
}

INSTANTIATE_TEST_SUITE_P(Peers, ModelOnly,
                         testing::Values("hot_apertus", "hot_deepseek", "hot_gpt2", "hot_llama",
                                         "hot_mixtral", "hot_qwen2", "hot_nemotron3_mtp",
                                         "hot_qwen3next_mtp"),
                         [](const auto& param) { return param.param; });

class AnyTorchDist : public testing::TestWithParam<std::string> {};

TEST_P(AnyTorchDist, HasArgsIterationLayoutAndObjects) {
  const Checkpoint checkpoint = open_fixture_run(GetParam());
  EXPECT_EQ(checkpoint.format, Format::torch_dist);
  EXPECT_EQ(checkpoint.iteration, 5);
  EXPECT_EQ(checkpoint.args.value.text(), "argparse.Namespace");
  EXPECT_EQ(checkpoint.args.value.get("num_layers").integer(), 4);
  const bool is_swiss = GetParam() == "swiss_llama_tp2pp2" || GetParam() == "hot_apertus";
  EXPECT_EQ(checkpoint.writer,
            is_swiss ? "Megatron Core 0.11 or earlier" : "Megatron Core 0.20 or later");
  EXPECT_EQ(checkpoint.metadata.value.is_none(), is_swiss);
  const ParallelLayout& layout = checkpoint.layout;
  EXPECT_EQ(layout.tensor * layout.pipeline * layout.context * layout.data, layout.world_size);
  EXPECT_EQ(checkpoint.catalog->find_object("common_state/shard_0_1"), nullptr);
  for (const char* name : {"args", "iteration", "checkpoint_version"}) {
    const Object* object = checkpoint.catalog->find_object(name);
    ASSERT_NE(object, nullptr) << name;
    EXPECT_TRUE(read_object(checkpoint.catalog, *object).value) << name;
  }
  EXPECT_EQ(read_object(checkpoint.catalog, *checkpoint.catalog->find_object("iteration"))
                .value.integer(),
            5);
}

TEST_P(AnyTorchDist, RawKeepsWhatPyTorchNames) {
  const Checkpoint raw = open_fixture_run(GetParam(), true);
  const Checkpoint logical = open_fixture_run(GetParam());
  const bool is_swiss = GetParam() == "swiss_llama_tp2pp2" || GetParam() == "hot_apertus";
  EXPECT_EQ(raw.catalog->find_object("common_state/shard_0_1") != nullptr, !is_swiss);
  EXPECT_EQ(raw.catalog->find_object("args"), nullptr);
  for (const Entry& entry : raw.catalog->entries) {
    const bool is_optimizer = entry.name.find("optimizer.") != std::string::npos;
    EXPECT_EQ(entry.role == Role::optimizer, is_optimizer) << entry.name;
    EXPECT_TRUE(is_optimizer || logical.catalog->find(entry.name)) << entry.name;
  }
  EXPECT_TRUE(raw.args.value);
  EXPECT_EQ(raw.optimizer, logical.optimizer);
}

INSTANTIATE_TEST_SUITE_P(Peers, AnyTorchDist,
                         testing::Values("hot_apertus", "hot_deepseek", "hot_gpt2", "hot_llama",
                                         "hot_mixtral", "hot_qwen2", "llama_dp4_dpr_buckets",
                                         "llama_pp2vpp", "llama_te_tp2dp2_dpr", "llama_tp2dp2_dpr",
                                         "qwen2_pp2", "qwen3moe_te_ep2pp2_dpr",
                                         "swiss_llama_tp2pp2"),
                         [](const auto& param) { return param.param; });

TEST(TorchDist, LayoutComesFromArgs) {
  const ParallelLayout layout = open_fixture_run("qwen3moe_te_ep2pp2_dpr").layout;
  EXPECT_EQ(layout.tensor, 1);
  EXPECT_EQ(layout.pipeline, 2);
  EXPECT_EQ(layout.expert, 2);
  EXPECT_EQ(layout.expert_tensor, 1);
  EXPECT_EQ(layout.context, 1);
  EXPECT_EQ(layout.world_size, 4);
  EXPECT_EQ(layout.data, 2);
  EXPECT_EQ(open_fixture_run("llama_pp2vpp").layout.virtual_pipeline, 2);
}

TEST(TorchDist, RngStateIsListedAndReadable) {
  const Checkpoint checkpoint = open_fixture_run("hot_llama");
  const Object* rng = checkpoint.catalog->find_object("rng_state/shard_0.1_1.2");
  ASSERT_NE(rng, nullptr);
  const LoadedValue value = read_object(checkpoint.catalog, *rng);
  EXPECT_EQ(value.value.kind(), ValueKind::list);
  EXPECT_TRUE(value.value[0][0].has("random_rng_state"));
}

TEST(TorchDist, KnowsOptimizerNames) {
  EXPECT_TRUE(is_optimizer_name("optimizer.state.param.x"));
  EXPECT_TRUE(is_optimizer_name("chained_12.optimizer.distributed.x"));
  EXPECT_FALSE(is_optimizer_name("chained_.optimizer.x"));
  EXPECT_FALSE(is_optimizer_name("chained_1optimizer.x"));
  EXPECT_FALSE(is_optimizer_name("decoder.optimizer.x"));
}

}  // namespace
}  // namespace ferry
