// Expected numbers are those of checkpoints that Megatron-LM wrote (per_bucket_numel and chunk
// boundaries of tests/fixtures/megatron/*), of models with 4 layers, hidden 32, 2 groups, ffn 88.
#include "ckpt/megatron/optimizer/buckets/flat_buffer.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

// A Llama layer of a rank of two, in order of registration with norms as modules.
void add_layer(std::vector<FlatParameter>& parameters, int64_t tensor_ranks) {
  for (int64_t elements : {int64_t{32}, 1024 / tensor_ranks, 2048 / tensor_ranks, int64_t{32},
                           5632 / tensor_ranks, 2816 / tensor_ranks}) {
    parameters.push_back({elements});
  }
}

TEST(FlatBuffer, OneBucketInReverseWithAlignedStarts) {
  std::vector<FlatParameter> parameters = {{4096}};  // half of the embeddings
  for (int layer = 0; layer < 4; ++layer) add_layer(parameters, 2);
  parameters.push_back({32});    // final norm
  parameters.push_back({4096});  // output layer
  const FlatBuffer buffer = lay_out_flat_buffer(parameters, {.ranks = 2});
  ASSERT_EQ(buffer.buckets.size(), 1u);
  EXPECT_EQ(buffer.buckets[0].elements, 31872);
  EXPECT_EQ(buffer.buckets[0].unpadded, 31808);
  EXPECT_EQ(buffer.places.back().begin, 0);
  EXPECT_EQ(buffer.places.front().begin, 27712);
  EXPECT_EQ(buffer.places.front().end, 31808);
  const size_t layer3 = 1 + 3 * 6;
  EXPECT_EQ(buffer.places[layer3 + 5].begin, 4160);  // fc2, after the final norm and a gap
  EXPECT_EQ(buffer.places[layer3 + 4].end, 8384);
  EXPECT_EQ(buffer.places[layer3 + 2].begin, 8448);
  EXPECT_EQ(buffer.places[layer3].end, 10016);
}

TEST(FlatBuffer, SharedEmbeddingsHaveABucketOfTheirOwn) {
  std::vector<FlatParameter> first = {{8192, true}};
  std::vector<FlatParameter> last;
  for (std::vector<FlatParameter>* stage : {&first, &last}) {
    for (int layer = 0; layer < 2; ++layer) {
      for (int64_t elements : {32, 1024, 2048, 64, 32, 5632, 2816}) {  // with a QKV bias
        stage->push_back({elements});
      }
    }
  }
  last.push_back({32});
  last.push_back({8192, true});
  const FlatBuffer a = lay_out_flat_buffer(first, {.ranks = 1});
  ASSERT_EQ(a.buckets.size(), 2u);
  EXPECT_EQ(a.buckets[0].elements, 23424);
  EXPECT_EQ(a.buckets[0].unpadded, 23424);
  EXPECT_EQ(a.places[0].bucket, 1u);
  EXPECT_EQ(a.places[0].begin, 0);
  const FlatBuffer b = lay_out_flat_buffer(last, {.ranks = 1});
  ASSERT_EQ(b.buckets.size(), 2u);
  EXPECT_EQ(b.buckets[0].elements, 8192);
  EXPECT_EQ(b.buckets[1].elements, 23552);
  EXPECT_EQ(b.buckets[1].unpadded, 23456);
}

TEST(FlatBuffer, BucketsAreClosedAboveTheirSize) {
  std::vector<FlatParameter> parameters = {{8192}};
  for (int layer = 0; layer < 4; ++layer) add_layer(parameters, 1);
  parameters.push_back({32});
  parameters.push_back({8192});
  const FlatBuffer buffer = lay_out_flat_buffer(parameters, {.ranks = 4, .bucket_elements = 20000});
  ASSERT_EQ(buffer.buckets.size(), 3u);
  EXPECT_EQ(buffer.buckets[0].elements, 22784);
  EXPECT_EQ(buffer.buckets[0].unpadded, 22720);
  EXPECT_EQ(buffer.buckets[1].elements, 20480);
  EXPECT_EQ(buffer.buckets[1].unpadded, 20416);
  EXPECT_EQ(buffer.buckets[2].elements, 19968);
  EXPECT_EQ(buffer.buckets[2].unpadded, 19904);
}

TEST(FlatBuffer, PadsForOddRankCountsAndForBandwidth) {
  const std::vector<FlatParameter> one = {{1000}};
  EXPECT_EQ(lay_out_flat_buffer(one, {.ranks = 3}).buckets[0].elements, 1152);
  EXPECT_EQ(lay_out_flat_buffer(one, {.ranks = 1, .pad_for_bandwidth = true}).buckets[0].elements,
            65536);
}

}  // namespace
}  // namespace ferry
