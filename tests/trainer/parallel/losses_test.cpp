// Losses by token, and those that routers have beside them, at all layouts.
#include "tests/trainer/parallel/small_run.h"

namespace ferry {
namespace {

using test::RunFigures;
using test::SmallRun;

// Micro-batches with many tokens that count, and with few.
void mask_unevenly(int64_t sample, std::vector<float>& mask) {
  const auto count = static_cast<int64_t>(mask.size());
  for (int64_t i = 0; i < count; ++i) {
    if (i * 5 < sample % 5 * count) mask[static_cast<size_t>(i)] = 0;
  }
}

// All samples in one micro-batch: its mean is the sum over tokens divided by their number.
TEST(PerTokenLoss, IsTheMeanOfAllTokensOfTheStep) {
  SmallRun small = test::small_run();
  small.mask = mask_unevenly;
  small.loss_scale = 4;
  small.options.sequences = small.global_batch;
  const RunFigures mean = train(small);
  for (const char* layout :
       {"", "MBS1", "MBS4", "DP2", "TP2 SP", "CP2", "PP2 MBS1", "TP2 SP CP2 PP2 DP2"}) {
    SCOPED_TRACE(layout);
    SmallRun by_token = small;
    by_token.options.sequences = 2;
    by_token.options.per_token_loss = true;
    lay_out(by_token, layout);
    expect_alike(train(by_token), mean, 2e-6);
    by_token.options.per_token_loss = false;
    EXPECT_GT(std::abs(train(by_token).steps[0].norm - mean.steps[0].norm), 1e-4);
  }
}

// What routers add counts as it does without --calculate-per-token-loss.
TEST(PerTokenLoss, LeavesTheRoutersLossesAsTheyAre) {
  SmallRun small = test::small_deepseek();
  small.router.balance_coefficient = 1;
  small.router.z_coefficient = 1;
  const RunFigures mean = train(small);
  small.options.per_token_loss = true;
  small.loss_scale = 8;
  expect_alike(train(small), mean, 1e-6);
}

TEST(ZLoss, IsTheSameAtAllLayouts) {
  SmallRun small = test::small_experts();
  small.router.balance = RouterOptions::Balance::none;
  const RunFigures without = train(small);
  EXPECT_TRUE(without.steps[0].others.empty());
  small.router.z_coefficient = 1;
  const RunFigures alone = train(small);
  EXPECT_EQ(alone.steps[0].loss, without.steps[0].loss);
  EXPECT_GT(alone.steps[0].norm, without.steps[0].norm);
  // The logarithm of a sum of four numbers near 1.
  EXPECT_NEAR(alone.steps[0].others.at("z_loss"), std::log(4) * std::log(4), 0.1);
  EXPECT_LT(alone.steps[2].others.at("z_loss"), alone.steps[0].others.at("z_loss"));
  for (const char* layout : {"TP2 SP", "TP2 SP ETP1", "CP2", "PP2", "DP2", "DP2 EP2", "MBS1",
                             "TP2 SP CP2 PP2 DP2 EP2"}) {
    SCOPED_TRACE(layout);
    SmallRun laid_out = small;
    lay_out(laid_out, layout);
    expect_alike(train(laid_out), alone, 2e-6);
  }
}

}  // namespace
}  // namespace ferry
