#include "trainer/data/sampler.h"

#include <gmock/gmock.h>

#include <set>

#include "ckpt/base/error.h"
#include "trainer/data/samples/random_order.h"

namespace ferry {
namespace {

using testing::ElementsAre;

std::vector<int64_t> taken(const SamplerOptions& options, int64_t consumed, int64_t number,
                           int64_t rank) {
  Sampler sampler(options);
  std::vector<int64_t> indices;
  sampler.take(consumed, number, rank, indices);
  return indices;
}

ErrorKind error_of(const SamplerOptions& options, int64_t consumed, int64_t number, int64_t rank) {
  try {
    taken(options, consumed, number, rank);
  } catch (const Error& error) {
    return error.kind();
  }
  return ErrorKind::internal;
}

SamplerOptions single(int64_t samples, int64_t micro, int64_t ranks) {
  SamplerOptions options;
  options.samples = samples;
  options.micro_batch_size = micro;
  options.data_ranks = ranks;
  return options;
}

SamplerOptions cyclic(int64_t samples, int64_t micro, int64_t ranks, bool sharding) {
  SamplerOptions options = single(samples, micro, ranks);
  options.order = SampleOrder::cyclic;
  options.data_sharding = sharding;
  return options;
}

TEST(Sampler, SingleDealsBlocksOut) {
  const SamplerOptions options = single(100, 2, 3);
  EXPECT_THAT(taken(options, 0, 0, 0), ElementsAre(0, 1));
  EXPECT_THAT(taken(options, 0, 0, 2), ElementsAre(4, 5));
  EXPECT_THAT(taken(options, 12, 1, 1), ElementsAre(20, 21));
}

TEST(Sampler, SingleEndsWithTheLastWholeBlock) {
  SamplerOptions options = single(100, 2, 3);
  EXPECT_EQ(Sampler(options).micro_batches_left(90), 1);
  EXPECT_THAT(taken(options, 90, 0, 2), ElementsAre(94, 95));
  EXPECT_EQ(error_of(options, 90, 1, 0), ErrorKind::exhausted);
  EXPECT_EQ(error_of(options, 100, 0, 0), ErrorKind::exhausted);
  options.drop_last = false;
  EXPECT_EQ(Sampler(options).micro_batches_left(90), 2);
  EXPECT_THAT(taken(options, 90, 1, 1), ElementsAre(98, 99));
  EXPECT_THAT(taken(options, 90, 1, 2), ElementsAre());
  options.samples = 99;
  EXPECT_THAT(taken(options, 90, 1, 1), ElementsAre(98));
  EXPECT_EQ(error_of(options, 90, 2, 0), ErrorKind::exhausted);
}

// A global batch is the same set of samples however it is dealt out.
TEST(Sampler, GlobalBatchesDependOnConsumedSamplesAlone) {
  for (int64_t consumed = 0; consumed < 240; consumed += 24) {
    std::vector<std::vector<int64_t>> batches;
    for (const auto& [micro, ranks] : {std::pair{1, 1}, {2, 3}, {4, 6}, {24, 1}, {1, 24}}) {
      Sampler sampler(single(240, micro, ranks));
      std::vector<int64_t> batch, part;
      for (int64_t number = 0; number < 24 / (micro * ranks); ++number) {
        for (int64_t rank = 0; rank < ranks; ++rank) {
          sampler.take(consumed, number, rank, part);
          batch.insert(batch.end(), part.begin(), part.end());
        }
      }
      batches.push_back(batch);
    }
    for (const auto& batch : batches) EXPECT_EQ(batch, batches.front());
  }
}

// Megatron-LM's MegatronPretrainingRandomSampler of 23 samples, micro-batches of 2, three ranks;
// the permutations are PyTorch's.
TEST(Sampler, CyclicKeepsEachRankToItsPart) {
  const SamplerOptions options = cyclic(23, 2, 3, true);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    const std::vector<int64_t> order = torch_permutation(6, static_cast<uint64_t>(epoch));
    for (int64_t rank = 0; rank < 3; ++rank) {
      for (int64_t block = 0; block < 3; ++block) {
        EXPECT_THAT(taken(options, 18 * epoch + 6 * block, 0, rank),
                    ElementsAre(6 * rank + order[static_cast<size_t>(2 * block)],
                                6 * rank + order[static_cast<size_t>(2 * block + 1)]));
        EXPECT_EQ(taken(options, 18 * epoch, block, rank),
                  taken(options, 18 * epoch + 6 * block, 0, rank));
      }
    }
  }
}

TEST(Sampler, CyclicWithoutShardingStridesThroughOneOrder) {
  const SamplerOptions options = cyclic(23, 2, 3, false);
  const std::vector<int64_t> order = torch_permutation(22, 1);
  EXPECT_THAT(taken(options, 18 + 6, 0, 1), ElementsAre(order[7], order[10]));
  EXPECT_THAT(taken(options, 18, 2, 2), ElementsAre(order[14], order[17]));
}

TEST(Sampler, CyclicReadsEachSampleOnceAnEpoch) {
  for (const bool sharding : {true, false}) {
    std::multiset<int64_t> seen;
    Sampler sampler(cyclic(48, 4, 2, sharding));
    std::vector<int64_t> part;
    for (int64_t consumed = 96; consumed < 144; consumed += 8) {
      for (int64_t rank = 0; rank < 2; ++rank) {
        sampler.take(consumed, 0, rank, part);
        seen.insert(part.begin(), part.end());
      }
    }
    EXPECT_EQ(seen.size(), 48u);
    EXPECT_EQ(std::set<int64_t>(seen.begin(), seen.end()).size(), 48u);
  }
}

TEST(Sampler, RefusesWhatCannotBe) {
  EXPECT_EQ(error_of(single(0, 1, 1), 0, 0, 0), ErrorKind::invalid);
  EXPECT_EQ(error_of(single(9, 0, 1), 0, 0, 0), ErrorKind::invalid);
  EXPECT_EQ(error_of(single(9, 1, 0), 0, 0, 0), ErrorKind::invalid);
  EXPECT_EQ(error_of(single(9, 1, 2), 0, 0, 2), ErrorKind::invalid);
  EXPECT_EQ(error_of(single(9, 1, 2), -1, 0, 0), ErrorKind::invalid);
  EXPECT_EQ(error_of(single(9, INT64_MAX, 2), 0, 0, 0), ErrorKind::corrupt);
  EXPECT_EQ(error_of(single(9, 1, 1), 0, INT64_MAX, 0), ErrorKind::exhausted);
  EXPECT_EQ(error_of(cyclic(5, 2, 3, true), 0, 0, 0), ErrorKind::invalid);
  EXPECT_EQ(error_of(cyclic(23, 2, 3, true), 4, 0, 0), ErrorKind::invalid);
  EXPECT_EQ(error_of(cyclic(23, 2, 3, true), 0, INT64_MAX / 2, 0), ErrorKind::corrupt);
}

}  // namespace
}  // namespace ferry
