// Gradients of every parameter, against differences of the loss.
#include "tests/trainer/parallel/small_run.h"

namespace ferry {
namespace {

using test::SmallRank;
using test::SmallRun;

void expect_true_gradients(const SmallRun& small, double disturbance = 0) {
  const auto links = thread_links(thread_groups(1));
  SmallRank rank(small, links[0]);
  if (disturbance > 0) rank.disturb(disturbance);
  for (const SmallRank::Slope& slope : rank.slopes(5e-4)) {
    EXPECT_NEAR(slope.by_gradient, slope.by_difference, 3e-4 + 1e-3 * std::abs(slope.by_difference))
        << slope.name;
    EXPECT_NE(slope.by_gradient, 0) << slope.name;
  }
}

TEST(Gradients, OfLlama) { expect_true_gradients(test::small_run()); }
TEST(Gradients, OfGpt2) { expect_true_gradients(test::small_gpt2()); }
TEST(Gradients, OfPredictionLayers) {
  expect_true_gradients(test::with_predictions(test::small_run()));
}
TEST(Gradients, OfPredictionLayersWithTiedEmbeddings) {
  SmallRun small = test::with_predictions(test::small_run());
  small.architecture.tied = true;
  expect_true_gradients(small);
}
TEST(Gradients, OfLayerNormsEverywhere) {
  SmallRun small = test::with_predictions(test::small_run());
  small.architecture.norm = Norm::layer;
  small.architecture.qk_norm = true;
  expect_true_gradients(small);
}
// Dropout does not change from one computation of the loss to the next.
TEST(Gradients, WithDropout) {
  SmallRun small = test::with_predictions(test::small_run());
  small.options.hidden_dropout = small.options.attention_dropout = 0.2;
  expect_true_gradients(small);
}
TEST(Gradients, OfOnePredictionLayerForAllTokens) {
  SmallRun small = test::with_repeated_prediction(test::small_run(), 3);
  small.options.hidden_dropout = small.options.attention_dropout = 0.2;
  expect_true_gradients(small);
}
// All experts are chosen: choices do not jump.
SmallRun deepseek(int64_t predictions = 2) {
  SmallRun small = test::small_deepseek();
  if (predictions > 0) small = test::with_predictions(std::move(small), predictions);
  small.router.balance = RouterOptions::Balance::none;
  small.architecture.experts_per_token = small.architecture.experts;
  return small;
}
TEST(Gradients, OfDeepSeek) { expect_true_gradients(deepseek()); }
TEST(Gradients, OfDeepSeekWithLayerNorms) {
  SmallRun small = deepseek();
  small.architecture.norm = Norm::layer;
  expect_true_gradients(small);
}
TEST(Gradients, OfGptOss) {
  SmallRun small = test::small_gpt_oss();
  small.router.balance = RouterOptions::Balance::none;
  small.architecture.experts_per_token = small.architecture.experts;
  small.options.attention_dropout = 0.2;
  expect_true_gradients(small, 0.05);  // the bias of an expert's output is multiplied by its weight
}
// SmolLM3's and Ernie's.
TEST(Gradients, OfPositionsOfSomeLayersAndPairs) {
  SmallRun small = test::small_run();
  small.architecture.unrotated_layers = {false, true, false, true};
  small.architecture.rope_interleaved = true;
  small.architecture.rotary_fraction = 0.5;
  expect_true_gradients(small);
}
// Its own positions are rotary, whatever the embeddings have.
TEST(Gradients, OfLatentAttentionWithLearnedPositions) {
  SmallRun small = deepseek(0);
  small.architecture.position_kind = Positions::learned;
  expect_true_gradients(small);
}
TEST(Gradients, OfLatentAttentionWithoutNorms) {
  SmallRun small = deepseek();
  small.architecture.qk_norm = false;
  expect_true_gradients(small);
}

}  // namespace
}  // namespace ferry
