#include "trainer/data/epochs/resamplers.h"

#include <gmock/gmock.h>

#include <array>
#include <chrono>
#include <limits>

#include "ckpt/base/error.h"
#include "trainer/data/epochs/permutation.h"

namespace ferry {
namespace {

using testing::ElementsAre;

// Numbers of bionemo-core's own functions.
TEST(Permutation, IsTheOriginals) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < 10; ++i) order.push_back(permute(i, 10, 42));
  EXPECT_THAT(order, ElementsAre(7, 9, 6, 8, 3, 5, 1, 4, 2, 0));
}

TEST(Permutation, HasEveryElementOnce) {
  for (int64_t n = 2; n <= 1100; ++n) {
    for (const int64_t seed : {int64_t{0}, int64_t{1}, 7919 * n, int64_t{INT32_MAX} - 1}) {
      std::vector<bool> seen(static_cast<size_t>(n));
      for (int64_t i = 0; i < n; ++i) {
        const auto at = static_cast<size_t>(permute(i, n, seed));
        ASSERT_LT(at, seen.size());
        ASSERT_FALSE(seen[at]) << n << " " << seed;
        seen[at] = true;
      }
    }
  }
  const int64_t most = int64_t{1} << 32;
  EXPECT_LT(permute(most - 1, most, 5), most);
  for (const auto& [i, n, seed] :
       {std::array<int64_t, 3>{0, 1, 1}, {2, 2, 1}, {-1, 2, 1}, {0, 2, -1}, {0, most + 1, 1}}) {
    EXPECT_THROW(permute(i, n, seed), Error) << i << " " << n;
  }
}

std::vector<int64_t> indices(const EpochResampler& resampler) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < resampler.size(); ++i) all.push_back(resampler.at(i).index);
  return all;
}

TEST(EpochResampler, ShufflesEachEpochAsTheOriginalDoes) {
  const EpochResampler resampler({.size = 5, .epochs = 3, .samples = {}});
  EXPECT_THAT(indices(resampler), ElementsAre(4, 1, 3, 0, 2, 0, 2, 3, 1, 4, 2, 1, 0, 4, 3));
  EXPECT_EQ(resampler.at(5), (EpochIndex{1, 0}));
}

TEST(EpochResampler, TakesEpochsSamplesOrNeither) {
  EXPECT_EQ(EpochResampler({.size = 7, .epochs = {}, .samples = {}}).size(), 7);
  const EpochResampler part({.size = 4, .epochs = {}, .samples = 6, .shuffle = false});
  EXPECT_THAT(indices(part), ElementsAre(0, 1, 2, 3, 0, 1));
  EXPECT_EQ(part.at(5), (EpochIndex{1, 1}));
  EXPECT_THAT(indices(EpochResampler({.size = 1, .epochs = 2, .samples = {}})), ElementsAre(0, 0));
  const auto fails = [](const EpochResamplerOptions& options) {
    EXPECT_THROW(EpochResampler{options}, Error);
  };
  fails({.size = 4, .epochs = 1, .samples = 4});
  fails({.size = 4, .epochs = 0, .samples = {}});
  fails({.size = 4, .epochs = {}, .samples = 0});
  fails({.size = 0, .epochs = {}, .samples = {}});
  fails({.size = (int64_t{1} << 32) + 1, .epochs = {}, .samples = {}});
  fails({.size = int64_t{1} << 60, .epochs = 1000, .samples = {}});
  EXPECT_THROW(part.at(6), Error);
  EXPECT_THROW(part.at(-1), Error);
}

TEST(EpochResampler, OfABillionElementsIsReadyAtOnce) {
  const EpochResampler resampler({.size = 1'000'000'000, .epochs = 1000, .samples = {}});
  EXPECT_EQ(resampler.size(), 1'000'000'000'000);
  EXPECT_EQ(resampler.at(999'999'999'999).epoch, 999);
}

TEST(RandomResampler, DrawsAsPythonDoes) {
  const auto first = [](int64_t size, uint32_t seed) {
    RandomResampler resampler(size, seed, 8);
    std::vector<int64_t> all;
    for (int64_t i = 0; i < 8; ++i) all.push_back(resampler.at(i));
    return all;
  };
  EXPECT_THAT(first(10, 42), ElementsAre(1, 0, 4, 3, 3, 2, 1, 8));
  EXPECT_THAT(first(10000, 43), ElementsAre(631, 4687, 2358, 7578, 6060, 1577, 7425, 9810));
  EXPECT_THAT(first(55000, 44), ElementsAre(26773, 34080, 35518, 45980, 7645, 11577, 24875, 14756));
  EXPECT_THAT(first(5000, 45), ElementsAre(2227, 3421, 3997, 2110, 670, 2483, 2774, 176));
}

TEST(RandomResampler, GivesTheSameInWhateverOrderItIsRead) {
  RandomResampler resampler(55000, 44);
  EXPECT_EQ(resampler.size(), 55000);
  EXPECT_EQ(resampler.at(3), 45980);
  EXPECT_EQ(resampler.at(3), 45980);
  EXPECT_EQ(resampler.at(1), 34080);
  EXPECT_EQ(resampler.at(7), 14756);
  EXPECT_EQ(resampler.at(0), 26773);
  EXPECT_THROW(resampler.at(55000), Error);
  EXPECT_THROW(RandomResampler(0), Error);
}

}  // namespace
}  // namespace ferry
