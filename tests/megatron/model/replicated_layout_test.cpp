// Models that are none of Megatron-LM's: every rank holds all of them, in their order.
#include <gmock/gmock.h>

#include "ckpt/base/error.h"
#include "ckpt/megatron/optimizer/buckets/model_buffers.h"
#include "ckpt/megatron/torch_dist/placement.h"

namespace ferry {
namespace {

const std::vector<ModelTensor> kTensors{{"linear1.weight", {64, 784}, DType::f32},
                                        {"linear1.bias", {64}, DType::f32},
                                        {"digit_classifier.weight", {10, 3}, DType::f32}};

TEST(ReplicatedLayout, HoldsEveryTensorWholeInItsOrder) {
  RunArguments run;
  run.layers = 1;
  run.tensor = 2;
  const ModelLayout layout = ModelLayout::replicated(kTensors, run);
  for (const int64_t rank : {0, 1}) {
    const auto parameters = layout.parameters({.tensor = rank}, {});
    ASSERT_EQ(parameters.size(), kTensors.size());
    for (size_t i = 0; i < kTensors.size(); ++i) {
      ASSERT_EQ(parameters[i].shards.size(), 1U);
      EXPECT_EQ(parameters[i].shards[0].tensor, i);
      EXPECT_EQ(parameters[i].shards[0].box, Box::whole(kTensors[i].shape));
      EXPECT_EQ(parameters[i].axes, static_cast<int>(kTensors[i].shape.size()));
      EXPECT_EQ(parameters[i].first_copy, rank == 0);
      EXPECT_TRUE(parameters[i].trainable);
    }
  }
}

TEST(ReplicatedLayout, IsNotLaidOutForMoreRanksThanRunsHave) {
  RunArguments run;
  run.layers = 1;
  run.tensor = int64_t{1} << 16;
  EXPECT_EQ(place_tensors({}, ModelLayout::replicated(kTensors, run), {}).size(), 0U);
  ++run.tensor;
  EXPECT_THAT([&] { place_tensors({}, ModelLayout::replicated(kTensors, run), {}); },
              testing::ThrowsMessage<Error>(
                  testing::HasSubstr("65537 ranks of 1 pipeline stages would hold parts")));
}

// What data ranks keep of the optimizer's state is theirs by the same rules as of any model.
TEST(ReplicatedLayout, IsSharedByDataRanks) {
  RunArguments run;
  run.layers = 1;
  run.world_size = 2;
  const ModelLayout layout = ModelLayout::replicated(kTensors, run);
  const auto buffers = optimizer_buffers(layout, {}, {}, {0, 1, false});
  ASSERT_EQ(buffers.size(), 1U);
  int64_t elements = 0;
  for (const int64_t rank : {0, 1}) {
    for (const BufferShard& shard : shards_of_rank(buffers[0], 2, rank)) {
      elements += shard.shard.elements("a shard");
    }
  }
  EXPECT_EQ(elements, 64 * 784 + 64 + 30);
}

TEST(ReplicatedLayout, IsOfOneStage) {
  RunArguments run;
  run.layers = 2;
  run.pipeline = 2;
  EXPECT_THROW(ModelLayout::replicated(kTensors, run), Error);
}

}  // namespace
}  // namespace ferry
