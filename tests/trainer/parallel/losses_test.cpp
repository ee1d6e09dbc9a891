// Losses by token, and the additional ones of routers, at all layouts.
#include <cmath>

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

SmallRun with_global_balance() {
  SmallRun small = test::small_experts();
  small.router.balance = RouterOptions::Balance::global_batch;
  small.router.balance_coefficient = 1;
  return small;
}

void expect_same_steps(const RunFigures& a, const RunFigures& b, const char* of_a,
                       const char* of_b) {
  for (size_t i = 0; i < a.steps.size(); ++i) {
    EXPECT_NEAR(a.steps[i].loss, b.steps[i].loss, 2e-6);
    EXPECT_NEAR(a.steps[i].norm, b.steps[i].norm, 2e-6);
    EXPECT_NEAR(a.steps[i].others.at(of_a), b.steps[i].others.at(of_b), 2e-6);
  }
}

TEST(GlobalBalanceLoss, OfOneMicroBatchIsThatOfMicroBatches) {
  constexpr const char* kGlobal = "global_load_balancing_loss";
  SmallRun small = with_global_balance();
  small.options.sequences = small.global_batch;
  const RunFigures global = train(small);
  EXPECT_EQ(global.steps[0].others.at("load_balancing_loss"), 0);
  SmallRun other = small;
  other.router.balance = RouterOptions::Balance::micro_batch;
  expect_same_steps(global, train(other), kGlobal, "load_balancing_loss");
  // Gradients are means over data-parallel ranks, each of which has a part of the loss.
  other = small;
  other.options.sequences /= 2;
  other.router.balance_coefficient = 2;
  lay_out(other, "DP2");
  expect_same_steps(global, train(other), kGlobal, kGlobal);
}

TEST(GlobalBalanceLoss, CountsAllMicroBatchesAtAllLayouts) {
  SmallRun small = with_global_balance();
  const RunFigures alone = train(small);
  for (const char* layout : {"TP2 SP", "CP2", "PP2", "PP2 VPP2", "TP2 SP CP2 PP2"}) {
    SCOPED_TRACE(layout);
    SmallRun other = small;
    lay_out(other, layout);
    expect_alike(train(other), alone, 2e-6);
  }
  small.router.balance = RouterOptions::Balance::micro_batch;
  EXPECT_GT(std::abs(train(small).steps[0].norm - alone.steps[0].norm), 1e-5);
}

// Each pass over a token counts as much less.
TEST(BalanceLoss, OfOnePredictionLayerForAllTokensCountsOnce) {
  using Balance = RouterOptions::Balance;
  for (const auto& [balance, name] :
       {std::pair{Balance::micro_batch, "load_balancing_loss"},
        std::pair{Balance::global_batch, "global_load_balancing_loss"}}) {
    SmallRun small = test::with_repeated_prediction(test::small_experts(), 4);
    small.router.balance = balance;
    small.router.z_coefficient = 1;
    small.architecture.moe_layers.push_back(true);
    const RunFigures figures = train(small);
    EXPECT_NEAR(figures.steps[0].others.at(name), 1, 0.2);
    EXPECT_NEAR(figures.steps[0].others.at("z_loss"), std::log(4) * std::log(4), 0.2);
  }
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
