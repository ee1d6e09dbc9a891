// Masters that are stored as 16-bit remainders of bf16 weights.
#include "ckpt/megatron/optimizer/masters/remainders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <random>

#include "ckpt/engine/engine.h"
#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/megatron/optimizer/masters/compare.h"
#include "tests/megatron/reshard_support.h"

namespace ferry {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kMasterElements = 6 * 40;
const Dims kMasterShape{6, 40};

template <typename T>
std::string raw_bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// Masters of any 32 bits, and what Transformer Engine makes of them.
struct SplitParameter {
  std::vector<float> masters;
  std::vector<uint16_t> weights;
  std::vector<int16_t> remainders;

  SplitParameter() {
    std::mt19937 random(3);
    std::normal_distribution<float> normal(0, 0.02F);
    for (int64_t i = 0; i < kMasterElements; ++i) {
      masters.push_back(normal(random));
      const auto bits = std::bit_cast<uint32_t>(masters.back());
      remainders.push_back(static_cast<int16_t>(bits & 0xffff));
      weights.push_back(static_cast<uint16_t>((bits >> 16) + (remainders.back() < 0 ? 1 : 0)));
    }
  }
  std::string remainders_as_floats() const {
    return raw_bytes_of(std::vector<float>(remainders.begin(), remainders.end()));
  }
};

LoadedValue said_arguments(std::optional<bool> precision_aware) {
  Draft draft;
  const Value args = draft.dict();
  draft.put(args, "num_layers", draft.integer(1));
  if (precision_aware) {
    draft.put(args, "use_precision_aware_optimizer", draft.boolean(*precision_aware));
  }
  return std::move(draft).finish(args);
}

// A checkpoint of one weight and its master, stored as `dtype` with `bytes`.
Checkpoint opened_pair(test::MemoryTensors& tensors, DType dtype, std::string bytes,
                       LoadedValue args = {}, DType weight = DType::bf16) {
  const SplitParameter parameter;
  std::string weights = raw_bytes_of(parameter.weights);
  weights.resize(static_cast<size_t>(kMasterElements * size_bytes(weight)));
  tensors.add("w", weight, kMasterShape, Role::model, weights);
  tensors.add("optimizer.state.exp_avg.w", DType::f32, kMasterShape, Role::optimizer,
              std::string(kMasterElements * 4, '\0'));
  tensors.add("optimizer.state.param.w", dtype, kMasterShape, Role::optimizer, std::move(bytes));
  Checkpoint checkpoint;
  checkpoint.catalog = Catalog(tensors.catalog());
  checkpoint.args = std::move(args);
  checkpoint.optimizer = OptimizerLayout::fully_reshardable;
  recognise_remainders(checkpoint);
  return checkpoint;
}

std::string master_of(const Checkpoint& checkpoint) {
  const Entry* entry = checkpoint.catalog->find("optimizer.state.param.w");
  return entry ? read_tensor(checkpoint.catalog, *entry, 1 << 20) : "";
}

TEST(Remainders, AreKnownByTheirDtype) {
  test::MemoryTensors tensors;
  const SplitParameter parameter;
  const Checkpoint checkpoint =
      opened_pair(tensors, DType::i16, raw_bytes_of(parameter.remainders), said_arguments(false));
  EXPECT_TRUE(has_remainders(checkpoint.catalog));
  EXPECT_EQ(master_of(checkpoint), raw_bytes_of(parameter.masters));
}

TEST(Remainders, AreKnownByTheirValues) {
  for (const LoadedValue& args : {LoadedValue(), said_arguments(true)}) {
    test::MemoryTensors tensors;
    const SplitParameter parameter;
    const Checkpoint checkpoint =
        opened_pair(tensors, DType::f32, parameter.remainders_as_floats(), args);
    EXPECT_TRUE(has_remainders(checkpoint.catalog));
    EXPECT_EQ(master_of(checkpoint), raw_bytes_of(parameter.masters));
  }
}

TEST(Remainders, OfARunThatCannotHaveThemAreMasters) {
  for (const std::optional<bool> said : {std::optional<bool>(false), std::optional<bool>()}) {
    test::MemoryTensors tensors;
    const Checkpoint checkpoint = opened_pair(
        tensors, DType::f32, SplitParameter().remainders_as_floats(), said_arguments(said));
    EXPECT_FALSE(has_remainders(checkpoint.catalog));
  }
}

// Real ones, of a run whose masters were asked for in another form.
TEST(Remainders, AreNotSeenInMasters) {
  test::MemoryTensors tensors;
  const SplitParameter parameter;
  const Checkpoint checkpoint =
      opened_pair(tensors, DType::f32, raw_bytes_of(parameter.masters), said_arguments(true));
  EXPECT_FALSE(has_remainders(checkpoint.catalog));
  EXPECT_EQ(master_of(checkpoint), raw_bytes_of(parameter.masters));
}

// Before the first step all are zero: the arguments decide.
TEST(Remainders, ThatAreAllZeroAreWhatTheArgumentsSay) {
  for (const bool said : {true, false}) {
    test::MemoryTensors tensors;
    const Checkpoint checkpoint = opened_pair(
        tensors, DType::f32, std::string(kMasterElements * 4, '\0'), said_arguments(said));
    EXPECT_EQ(has_remainders(checkpoint.catalog), said);
  }
}

TEST(Remainders, WithoutTheirWeightsAreLeftOut) {
  test::MemoryTensors tensors;
  const Checkpoint checkpoint =
      opened_pair(tensors, DType::i16, raw_bytes_of(SplitParameter().remainders),
                  said_arguments(true), DType::f32);
  EXPECT_THAT(checkpoint.optimizer_problem,
              HasSubstr("optimizer.state.param.w holds 16-bit remainders"));
  EXPECT_EQ(checkpoint.catalog->entries.size(), 1);
}

// The optimizer's state of `expected`, bit for bit. Weights are its masters rounded, which may be
// up where the source went to the even number.
void expect_masters(const Checkpoint& found, const Checkpoint& expected) {
  ASSERT_EQ(found.catalog->entries.size(), expected.catalog->entries.size());
  const EntryIndex index(found.catalog);
  EngineOptions engine;
  engine.threads = 1;
  int64_t rounded_up = 0;
  for (const Entry& entry : expected.catalog->entries) {
    const Entry* other = index.find(entry.name);
    ASSERT_NE(other, nullptr) << entry.name;
    EXPECT_EQ(other->dtype, entry.dtype) << entry.name;
    const bool same = read_tensor(found.catalog, *other, 1 << 24) ==
                      read_tensor(expected.catalog, entry, 1 << 24);
    EXPECT_TRUE(same || entry.role == Role::model) << entry.name;
    rounded_up += same ? 0 : 1;
  }
  EXPECT_LE(rounded_up, 1);
  const std::vector<MasterPair> pairs = master_pairs(expected.catalog);
  EXPECT_GT(pairs.size(), 5);
  EXPECT_THAT(compare_masters(expected.catalog, pairs, engine), IsEmpty());
}

// The run's own masters, cut into halves, stored as Megatron-LM stores them, and read again.
TEST(Remainders, OfARunAreItsMastersBitForBit) {
  for (const std::string name : {"llama_tp2dp2_dpr", "qwen3moe_te_ep2pp2_dpr"}) {
    const Checkpoint source =
        open_checkpoint(posix_file_system(), test::fixture("megatron/" + name));
    const auto memory = std::make_shared<MemoryFileSystem>();
    RunState state = state_of(source);
    EXPECT_GT(split_masters(state), 5);
    TorchDistOptions options;
    options.optimizer = ShardedOptimizer::dp_reshardable;
    test::write(plan_torch_dist(std::move(state), options), memory, "halves");
    const Checkpoint raw = open_checkpoint(memory, "halves", {{}, true});
    int64_t halves = 0;
    for (const Entry& entry : raw.catalog->entries) {
      if (!entry.name.ends_with(".param")) continue;
      EXPECT_EQ(entry.dtype, DType::i16) << entry.name;
      ++halves;
    }
    EXPECT_GT(halves, 0);
    const Checkpoint read = open_checkpoint(memory, "halves");
    EXPECT_TRUE(has_remainders(read.catalog));
    expect_masters(read, source);
    ParallelTarget target;
    target.tensor = 1;
    expect_masters(test::reshard(read, target, memory, "whole"), source);
  }
}

}  // namespace
}  // namespace ferry
