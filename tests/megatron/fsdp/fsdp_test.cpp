// Megatron-LM's checkpoints in PyTorch's own form. The files of tests/fixtures/fsdp were saved by
// two processes through PyTorch's DCP, with the keys and objects that Megatron-FSDP's source gives
// them (tests/interop/fixtures/make_fsdp_fixtures.py); what Megatron-FSDP itself saved is held
// against ferry by tests/interop/checkpoints/check_fsdp.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "ckpt/base/error.h"
#include "ckpt/format/torch/objects.h"
#include "ckpt/megatron/state_of.h"
#include "tests/megatron/reshard_support.h"

namespace ferry {
namespace {

using test::fixture;

Checkpoint open_fsdp(const std::string& name) {
  return open_checkpoint(posix_file_system(), fixture("fsdp/" + name));
}

nlohmann::json fsdp_truth(const std::string& name) {
  return nlohmann::json::parse(std::ifstream(fixture("fsdp/" + name + ".json")));
}

void expect_same_tensors(const Checkpoint& checkpoint, const nlohmann::json& truth) {
  std::set<std::string> names;
  for (const Entry& entry : checkpoint.catalog->entries) {
    ASSERT_TRUE(truth.contains(entry.name)) << entry.name;
    names.insert(entry.name);
    const auto& expected = truth[entry.name];
    EXPECT_EQ(torch_name(entry.dtype), expected["dtype"].get<std::string>()) << entry.name;
    EXPECT_EQ(entry.shape, expected["shape"].get<Dims>()) << entry.name;
    EXPECT_EQ(test::hash_of(read_tensor(checkpoint.catalog, entry, 1 << 30)),
              expected["xxh3_128"].get<std::string>())
        << entry.name;
    EXPECT_EQ(entry.role == Role::optimizer, entry.name.starts_with("optimizer.state."));
  }
  EXPECT_EQ(names.size(), truth.size());
}

struct FsdpCase {
  std::string name;
  Format format;
  OptimizerLayout optimizer;
};

class FsdpCheckpoint : public testing::TestWithParam<FsdpCase> {};

TEST_P(FsdpCheckpoint, HasTheTensorsOfATorchDistCheckpoint) {
  const Checkpoint checkpoint = open_fsdp(GetParam().name);
  EXPECT_EQ(checkpoint.format, GetParam().format);
  EXPECT_EQ(checkpoint.optimizer, GetParam().optimizer);
  EXPECT_EQ(checkpoint.optimizer_problem, "");
  EXPECT_EQ(checkpoint.iteration, 7);
  EXPECT_EQ(checkpoint.layout.world_size, 2);
  expect_same_tensors(checkpoint, fsdp_truth(GetParam().name));
}

TEST_P(FsdpCheckpoint, BecomesAnyOtherLayoutBitByBit) {
  const Checkpoint checkpoint = open_fsdp(GetParam().name);
  const auto memory = std::make_shared<MemoryFileSystem>();
  ParallelTarget target;
  target.tensor = 2;
  target.pipeline = 2;
  target.data = 1;
  const Checkpoint resharded = test::reshard(checkpoint, target, memory, "resharded");
  const nlohmann::json truth = fsdp_truth(GetParam().name);
  const bool masters_are_the_model = GetParam().format == Format::fsdp_dtensor;
  for (const auto& [name, expected] : truth.items()) {
    const bool is_state = name.starts_with("optimizer.state.");
    const Entry* entry = resharded.catalog->find(
        is_state || !masters_are_the_model ? name : "optimizer.state.param." + name);
    ASSERT_NE(entry, nullptr) << name;
    EXPECT_EQ(test::hash_of(read_tensor(resharded.catalog, *entry, 1 << 30)),
              expected["xxh3_128"].get<std::string>())
        << name;
    if (is_state) continue;
    EXPECT_EQ(resharded.catalog->find(name)->dtype, DType::bf16) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Forms, FsdpCheckpoint,
    testing::Values(FsdpCase{"dense", Format::fsdp_dtensor, OptimizerLayout::fsdp_dtensor},
                    FsdpCase{"mixture", Format::fsdp_dtensor, OptimizerLayout::fsdp_dtensor},
                    FsdpCase{"torch_dcp", Format::torch_dcp, OptimizerLayout::plain}),
    [](const auto& param) { return param.param.name; });

TEST(FsdpState, HasGroupsSchedulerAndRandomNumbers) {
  for (const std::string name : {"dense", "torch_dcp"}) {
    const Checkpoint checkpoint = open_fsdp(name);
    const RunState state = state_of(checkpoint);
    ASSERT_EQ(state.param_groups.size(), 1u) << name;
    const Value& groups = state.param_groups[0].value;
    ASSERT_EQ(groups.size(), 2u) << name;
    EXPECT_EQ(groups[0].get("wd_mult").real(), 1.0);
    EXPECT_EQ(groups[1].get("wd_mult").real(), 0.0);
    EXPECT_EQ(groups[1].get("step").integer(), 7);
    EXPECT_FALSE(groups[0].has("params"));
    const auto scheduler = std::ranges::find_if(
        state.common, [](const auto& member) { return member.first == "opt_param_scheduler"; });
    ASSERT_NE(scheduler, state.common.end());
    EXPECT_EQ(scheduler->second.value.get("num_steps").integer(), 40);
    EXPECT_EQ(scheduler->second.value.get("lr_decay_style").string(), "cosine");
    ASSERT_EQ(state.rng.size(), 1u);
    const Value rng = state.rng[0].value.value[0];
    EXPECT_EQ(rng.get("random_rng_state")[1].size(), 5u);
    ASSERT_NE(rng.get("torch_rng_state").tensor(), nullptr);
    EXPECT_EQ(rng.get("torch_rng_state").tensor()->shape, Dims{16});
    EXPECT_EQ(state.args.value.get("use_megatron_fsdp").boolean().value_or(false), false);
    EXPECT_EQ(state.args.value.get("use_torch_fsdp2").boolean().value_or(false), false);
  }
}

TEST(FsdpState, RawShowsTheKeysAsTheyAre) {
  OpenOptions options;
  options.raw = true;
  const Checkpoint raw = open_checkpoint(posix_file_system(), fixture("fsdp/dense"), options);
  EXPECT_EQ(raw.format, Format::dcp);
  EXPECT_NE(raw.catalog->find("model.module.decoder.layers.1.mlp.linear_fc1.weight_v"), nullptr);
  EXPECT_NE(raw.catalog->find("rng_state.(0, 0).0.torch_rng_state"), nullptr);
}

}  // namespace
}  // namespace ferry
