// The numbers that NumPy, PyTorch and Megatron-LM's own code give.
#include "trainer/data/samples/gpt_indices.h"

#include <gmock/gmock.h>
#include <nettle/md5.h>

#include <numeric>

#include "tests/trainer/data/made_up_tokens.h"
#include "trainer/data/documents/token_source.h"
#include "trainer/data/samples/blended_dataset.h"
#include "trainer/data/samples/random_order.h"

namespace ferry {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

std::vector<int32_t> counted(int32_t count) {
  std::vector<int32_t> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

TEST(RandomOrder, NumpyShufflesSo) {
  NumpyRandomState random(1234);
  std::vector<int32_t> ten = counted(10), eight = counted(8);
  random.shuffle(std::span(ten));
  random.shuffle(std::span(eight));
  EXPECT_THAT(ten, ElementsAre(7, 2, 9, 1, 0, 8, 4, 5, 6, 3));
  EXPECT_THAT(eight, ElementsAre(7, 5, 6, 0, 4, 3, 2, 1));
}

TEST(RandomOrder, NumpyShufflesAMillionSo) {
  NumpyRandomState random(1234);
  std::vector<int32_t> values = counted(1000000);
  random.shuffle(std::span(values));
  EXPECT_THAT(std::span(values).first(3), ElementsAre(433572, 254298, 686334));
  EXPECT_EQ(test::md5_of(std::as_bytes(std::span(values))), "399e17340f2524b6a6564bb83429446e");
}

TEST(RandomOrder, NumpyDrawsIntegersSo) {
  EXPECT_THAT(numpy_integers(42, 0, INT32_MAX, 4),
              ElementsAre(191664963, 1662057957, 1405681631, 942484272));
  EXPECT_THAT(numpy_integers(0, 0, INT32_MAX, 4),
              ElementsAre(1826701614, 1367864806, 1097657231, 579362555));
  EXPECT_THAT(numpy_integers(1, 0, INT32_MAX, 2), ElementsAre(1016164991, 1099128568));
}

// default_rng(0).integers(1, 4096, 100000, dtype=int32), by NumPy 2.4.
TEST(RandomOrder, MockSequencesAreSoLong) {
  const MockTokens tokens(1000, 999);
  EXPECT_EQ(tokens.sequences(), 100000);
  EXPECT_EQ(count_tokens(tokens, {0, 100000}), 204637097);
  std::vector<int32_t> lengths;
  for (int64_t i = 0; i < 100000; ++i) lengths.push_back(tokens.length(i));
  EXPECT_THAT(std::span(lengths).first(5), ElementsAre(3484, 2609, 2094, 1105, 1261));
  EXPECT_EQ(test::md5_of(std::as_bytes(std::span(lengths))), "2525c3165d32705555d9327d0e77cce2");
}

TEST(RandomOrder, TorchPermutesSo) {
  EXPECT_THAT(torch_permutation(10, 0), ElementsAre(4, 1, 7, 5, 3, 9, 0, 8, 6, 2));
  EXPECT_THAT(torch_permutation(10, 42), ElementsAre(2, 6, 1, 8, 4, 5, 0, 9, 3, 7));
  EXPECT_THAT(torch_permutation(1, 7), ElementsAre(0));
  EXPECT_THAT(torch_permutation(0, 7), ElementsAre());
}

// torch.rand(1000003) after manual_seed(2971215073), by PyTorch 2.11.
TEST(RandomOrder, TorchDrawsUniformNumbersSo) {
  const std::vector<float> values = torch_uniform(1000003, 2971215073);
  EXPECT_EQ(test::md5_of(std::as_bytes(std::span(values))), "40ea79e66037f0a63d6906f5569ab57b");
}

// Built from sequences of 7 3 12 5 9 4 tokens: samples of 8, seed 1234 by default.
struct Built {
  EpochPlan plan;
  std::vector<int32_t> documents, rows;
  std::vector<uint32_t> order;
};

Built build(SequenceRange range, std::optional<int64_t> samples, uint32_t seed, bool drop_last) {
  const test::MadeUpTokens tokens({7, 3, 12, 5, 9, 4});
  NumpyRandomState random(seed);
  Built built;
  built.plan = plan_epochs(count_tokens(tokens, range), 8, samples, drop_last);
  built.documents = build_document_index(range, built.plan, random);
  built.rows = build_sample_index<int32_t>(tokens, built.documents, 8, built.plan.samples);
  built.order = build_shuffle_index(built.plan, random);
  EXPECT_EQ(std::vector<int64_t>(built.rows.begin(), built.rows.end()),
            build_sample_index<int64_t>(tokens, built.documents, 8, built.plan.samples));
  EXPECT_TRUE(is_document_index(built.documents, range, built.plan));
  EXPECT_TRUE(is_shuffle_index(built.order, built.plan));
  return built;
}

TEST(GptIndices, LastEpochStandsApart) {
  const Built built = build({0, 6}, 11, 1234, true);
  EXPECT_EQ(built.plan.epochs, 3);
  EXPECT_TRUE(built.plan.last_epoch_apart);
  EXPECT_THAT(built.documents, ElementsAre(1, 2, 5, 2, 3, 4, 1, 0, 4, 5, 0, 3, 1, 0, 3, 2, 5, 4));
  EXPECT_THAT(built.rows, ElementsAre(0, 0, 1, 5, 2, 1, 3, 5, 4, 1, 5, 4, 7, 0, 8, 1, 9, 0, 10, 4,
                                      12, 0, 13, 5, 15, 1, 15, 9, 17, 1));
  EXPECT_THAT(built.order, ElementsAre(3, 6, 2, 1, 7, 5, 4, 0, 8, 13, 10, 12, 9, 11));
}

TEST(GptIndices, EpochsAreShuffledTogether) {
  const Built built = build({0, 6}, 9, 1234, true);
  EXPECT_EQ(built.plan.epochs, 2);
  EXPECT_FALSE(built.plan.last_epoch_apart);
  EXPECT_THAT(built.documents, ElementsAre(1, 2, 5, 2, 3, 4, 1, 0, 4, 5, 0, 3));
  EXPECT_THAT(built.order, ElementsAre(7, 3, 5, 1, 4, 8, 0, 2, 6));
}

TEST(GptIndices, OneEpoch) {
  const Built built = build({0, 6}, std::nullopt, 1234, true);
  EXPECT_THAT(built.documents, ElementsAre(2, 1, 5, 0, 4, 3));
  EXPECT_THAT(built.rows, ElementsAre(0, 0, 0, 8, 2, 1, 3, 5, 4, 6));
  EXPECT_THAT(built.order, ElementsAre(0, 2, 1, 3));
}

TEST(GptIndices, LastPartialSampleIsKept) {
  const Built built = build({2, 6}, 3, 28, false);
  EXPECT_THAT(built.documents, ElementsAre(2, 4, 5, 3));
  EXPECT_THAT(built.rows, ElementsAre(0, 0, 0, 8, 1, 4, 2, 3, 3, 4));
  EXPECT_THAT(built.order, ElementsAre(1, 3, 0, 2));
}

TEST(GptIndices, CountsSamplesInFloatsWhereTheLastIsKept) {
  // 2^24 + 1 tokens with labels are 2^24 in 32 bits: the one token too many makes no sample.
  EXPECT_EQ(plan_epochs((1 << 24) + 2, 1 << 10, std::nullopt, false).samples, 1 << 14);
  EXPECT_EQ(plan_epochs((1 << 24) + 2, 1 << 10, std::nullopt, true).samples, 1 << 14);
  EXPECT_EQ(plan_epochs((1 << 24), 1 << 10, std::nullopt, false).samples, 1 << 14);
  EXPECT_EQ(plan_epochs((1 << 24), 1 << 10, std::nullopt, true).samples, (1 << 14) - 1);
}

TEST(GptIndices, EmptySequencesHoldNoSample) {
  const test::MadeUpTokens tokens({0, 3, 0, 0, 4, 0});
  const std::vector<int32_t> documents = {0, 1, 2, 3, 4, 5};
  EXPECT_THAT(build_sample_index<int32_t>(tokens, documents, 3, 2), ElementsAre(0, 0, 4, 0, 4, 3));
}

TEST(GptIndices, RefusesWhatCannotBe) {
  EXPECT_THROW(plan_epochs(0, 8, 1, true), Error);
  EXPECT_THROW(plan_epochs(10, 0, 1, true), Error);
  EXPECT_THROW(plan_epochs(10, 8, -1, true), Error);
  EXPECT_THROW(plan_epochs(10, 8, INT64_MAX / 4, true), Error);
  EXPECT_THROW(plan_epochs(10, 1, int64_t{1} << 33, true), Error);
  EXPECT_EQ(plan_epochs(0, 8, 0, true).samples, 0);
  EXPECT_THROW(count_tokens(test::MadeUpTokens({5, -1}), {0, 2}), Error);
}

std::vector<int64_t> ids(const BlendIndices& blend) {
  return {blend.datasets.begin(), blend.datasets.end()};
}

TEST(Blend, TakesWhatLagsFurthest) {
  const BlendIndices two = build_blend(std::array{.7, .3}, 10);
  EXPECT_THAT(ids(two), ElementsAre(0, 1, 0, 0, 1, 0, 0, 1, 0, 0));
  EXPECT_THAT(two.samples, ElementsAre(0, 0, 1, 2, 1, 3, 4, 2, 5, 6));
  EXPECT_THAT(ids(build_blend(std::array{.5, .3, .2}, 12)),
              ElementsAre(0, 1, 2, 0, 1, 0, 2, 0, 1, 0, 0, 1));
}

TEST(Blend, ExhaustsItsDatasets) {
  const BlendIndices blend = build_exhaustive_blend(std::array{int64_t{5}, int64_t{3}, int64_t{1}});
  EXPECT_THAT(ids(blend), ElementsAre(0, 1, 2, 0, 1, 0, 0, 1, 0));
  EXPECT_THAT(blend.samples, ElementsAre(0, 0, 0, 1, 1, 2, 3, 2, 4));
}

}  // namespace
}  // namespace ferry
