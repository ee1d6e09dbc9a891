#include "trainer/loop/batch_size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ckpt/base/error.h"
#include "tests/random_cases.h"

namespace ferry {
namespace {

using testing::ElementsAre;

TEST(BatchSchedule, HasThresholdsInTokensOrSamples) {
  EXPECT_THAT(
      parse_batch_schedule("0:768 250B:1536 500B:3072", 4096),
      ElementsAre(BatchStep{0, 768}, BatchStep{61035156, 1536}, BatchStep{122070312, 3072}));
  EXPECT_THAT(parse_batch_schedule("1.5k:16,0:8", 0),
              ElementsAre(BatchStep{0, 8}, BatchStep{1500, 16}));
  for (const char* bad : {"", "5:8", "0:8 0:9", "0:0", "0:-1", "0", "0:8 x:9", "0:8 5:", "0:8 5",
                          "0:nan", "0:1e30", "0:8 9T9:3", ":"}) {
    EXPECT_THROW(parse_batch_schedule(bad, 0), Error) << bad;
  }
}

// The rule of the releases that had it, sample by sample.
int64_t ramp_rule(int64_t start, int64_t increment, int64_t samples, int64_t last,
                  int64_t consumed) {
  if (consumed > samples) return last;
  const double each =
      static_cast<double>(samples) / static_cast<double>((last - start) / increment);
  return start + static_cast<int64_t>(static_cast<double>(consumed) / each) * increment;
}

TEST(RampUp, IsTheRuleAtEverySample) {
  test::for_random_cases(200, [](uint64_t number) {
    const auto pick = [&](uint64_t salt, int64_t most) {
      return static_cast<int64_t>((number * 2654435761u + salt * 40503u) %
                                  static_cast<uint64_t>(most));
    };
    const int64_t increment = 1 + pick(1, 9);
    const int64_t start = 1 + pick(2, 20);
    const int64_t last = start + increment * pick(3, 12);
    const int64_t samples = 1 + pick(4, 300);
    if (last == start) return;
    BatchSizes sizes;
    sizes.steps = ramp_up(start, increment, samples, last);
    sizes.micro_batch_size = 1;
    for (int64_t consumed = 0; consumed <= samples + 5; ++consumed) {
      ASSERT_EQ(batch_at(sizes, consumed).global,
                ramp_rule(start, increment, samples, last, consumed))
          << start << " " << increment << " " << samples << " " << last << " at " << consumed;
    }
  });
}

TEST(RampUp, RefusesWhatDoesNotMeetTheBatch) {
  EXPECT_THROW(ramp_up(8, 8, 100, 20), Error);
  EXPECT_THROW(ramp_up(8, 0, 100, 16), Error);
  EXPECT_THROW(ramp_up(16, 8, 100, 8), Error);
  EXPECT_THROW(ramp_up(8, 8, 0, 16), Error);
  EXPECT_THROW(ramp_up(1, 1, 100, int64_t{1} << 40), Error);
}

TEST(BatchAt, CountsMicroBatches) {
  BatchSizes sizes;
  sizes.steps = {{0, 8}, {100, 24}};
  sizes.micro_batch_size = 2;
  sizes.data_parallel_size = 4;
  EXPECT_EQ(batch_at(sizes, 99).micro_batches, 1);
  EXPECT_EQ(batch_at(sizes, 100).micro_batches, 3);
  sizes.data_parallel_size = 5;
  EXPECT_THROW(batch_at(sizes, 0), Error);
  sizes.round_down = true;
  EXPECT_EQ(batch_at(sizes, 100).running, 20);
  EXPECT_EQ(batch_at(sizes, 100).global, 24);
  EXPECT_THROW(batch_at(sizes, 0), Error);  // nothing is left of it
}

TEST(CheckBatches, LooksAtThoseThatARunMeets) {
  BatchSizes sizes;
  sizes.micro_batch_size = 2;
  sizes.steps = {{0, 4}, {8, 6}, {20, 7}};
  check_batches(sizes, 4, 1);
  EXPECT_THROW(check_batches(sizes, 5, 1), Error);
  check_batches(sizes, 2, 2);
  EXPECT_THROW(check_batches(sizes, 3, 2), Error);
}

TEST(IterationsFor, CountsAsMegatronDoes) {
  BatchSizes sizes;
  sizes.steps = {{0, 288}};
  EXPECT_EQ(iterations_for(sizes, 146484375), 508626);
  sizes.steps = {{0, 2}};
  EXPECT_EQ(iterations_for(sizes, 146484375), 73242187);
  EXPECT_THROW(iterations_for(sizes, int64_t{1} << 40), Error);
  // Iterations that begin before a threshold take the size before it.
  sizes.steps = {{0, 8}, {100, 24}};
  EXPECT_EQ(iterations_for(sizes, 104 + 24 + 23), 13 + 1);
  sizes.keep_rest = true;
  EXPECT_EQ(iterations_for(sizes, 104 + 24 + 23), 13 + 2);
  EXPECT_EQ(iterations_for(sizes, 20), 3);
}

}  // namespace
}  // namespace ferry
