#include "trainer/schedule/batch_size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ckpt/base/error.h"
#include "tests/random_cases.h"
#include "tests/trainer/arguments/runs.h"
#include "trainer/loop/loop_options.h"

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

TEST(CheckBatches, ChecksThoseThatARunMeets) {
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

TEST(SamplesFor, CountsWhatIterationsTake) {
  BatchSizes sizes;
  sizes.micro_batch_size = 2;
  sizes.steps = {{0, 8}};
  EXPECT_EQ(samples_for(sizes, 0), 0);
  EXPECT_EQ(samples_for(sizes, 5), 40);
  // 8 eight times are 64; the next begins at 64, which is a threshold.
  sizes.steps = {{0, 8}, {60, 24}, {62, 30}, {130, 6}};
  EXPECT_EQ(samples_for(sizes, 8), 64);
  EXPECT_EQ(samples_for(sizes, 9), 94);
  EXPECT_EQ(samples_for(sizes, 12), 64 + 3 * 30 + 6);
  sizes.steps = {{0, 9}};
  sizes.round_down = true;
  EXPECT_EQ(samples_for(sizes, 3), 24);
}

std::vector<std::string> warnings_of(const std::string& more) {
  return loop_warnings(
      test::completed("--num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 32 "
                      "--max-position-embeddings 32 --micro-batch-size 2 --lr 1e-3 --min-lr 1e-5 "
                      "--mock-data --tokenizer-type NullTokenizer --vocab-size 100 " +
                      more)
          .arguments);
}

// Schedules by iterations under batches that change end where the run does not.
TEST(LoopWarnings, HaveTheFiguresOfSchedulesThatEndElsewhere) {
  // 0:2 and 8 from sample 4 on (128 tokens): 2 + 2 + 98 x 8 samples, counted as 100 x 2.
  const std::string grows = "--train-iters 100 --step-batch-size-schedule '0:2 128:8' ";
  const auto cosine = warnings_of(grows + "--lr-decay-style cosine --lr-warmup-iters 10");
  ASSERT_EQ(cosine.size(), 1U);
  EXPECT_EQ(
      cosine[0],
      "--train-iters: the schedule counts each iteration as 2 samples, so it warms up over 20 and "
      "decays until sample 200, but batch sizes change and 100 iterations take 788 samples: the "
      "final learning rate is 1.000000E-05, reached at iteration 28 (--min-lr is 1.000000E-05); "
      "give --train-samples 788 instead, with --lr-decay-samples and --lr-warmup-samples");
  // Fewer samples than are counted: the end of the decay is not reached.
  const std::string shrinks =
      "--train-iters 100 --global-batch-size 7 --decrease-batch-size-if-needed ";
  const auto wsd = warnings_of(shrinks + "--lr-decay-style WSD --lr-wsd-decay-iters 20");
  ASSERT_EQ(wsd.size(), 1U);
  EXPECT_THAT(wsd[0],
              testing::HasSubstr("until sample 700, but batch sizes change and 100 iterations take "
                                 "600 samples: the final learning rate is 6.4"));
}

TEST(LoopWarnings, AreNotOfRunsThatEndTogether) {
  EXPECT_TRUE(warnings_of("--train-iters 100 --global-batch-size 8").empty());
  EXPECT_TRUE(warnings_of("--train-samples 800 --step-batch-size-schedule '0:2 128:8'").empty());
  EXPECT_TRUE(
      warnings_of("--train-samples 800 --global-batch-size 8 --rampup-batch-size 2 2 64").empty());
  EXPECT_TRUE(warnings_of("--train-iters 100 --step-batch-size-schedule '0:2 128:8' "
                          "--lr-decay-style constant")
                  .empty());
  EXPECT_TRUE(warnings_of("--train-iters 2 --step-batch-size-schedule '0:2 128:8'").empty());
}

}  // namespace
}  // namespace ferry
