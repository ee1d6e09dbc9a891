// Layers that predict tokens further on: the same at all layouts.
#include <cmath>

#include "tests/trainer/parallel/small_run.h"

namespace ferry {
namespace {

using test::RunFigures;
using test::SmallRun;

struct PredictingRun {
  const char* model;
  const char* layout;
};

void PrintTo(const PredictingRun& one, std::ostream* out) {
  *out << one.model << " " << one.layout;
}

SmallRun predicting(std::string_view model) {
  const bool experts = model.starts_with("deepseek");
  SmallRun small = experts ? test::small_deepseek() : test::small_run();
  small = model.ends_with("repeated") ? test::with_repeated_prediction(std::move(small), 3)
                                      : test::with_predictions(std::move(small));
  small.architecture.tied = model == "tied";
  small.router.balance = RouterOptions::Balance::none;
  small.options.hidden_dropout = 0.1;
  return small;
}

class Predicted : public testing::TestWithParam<PredictingRun> {};

TEST_P(Predicted, DoesNotDependOnTheLayout) {
  SmallRun small = predicting(GetParam().model);
  const RunFigures alone = train(small);
  ASSERT_TRUE(alone.steps[0].others.contains("mtp_2 loss"));
  lay_out(small, GetParam().layout);
  expect_alike(train(small), alone, 1e-6);
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, Predicted,
    testing::Values(PredictingRun{"llama", "TP2"}, PredictingRun{"llama", "TP2 SP"},
                    PredictingRun{"llama", "PP2"}, PredictingRun{"llama", "PP2 VPP2"},
                    PredictingRun{"llama", "DP2"}, PredictingRun{"llama", "CP2"},
                    PredictingRun{"llama", "MBS1"}, PredictingRun{"tied", "TP2 SP"},
                    PredictingRun{"tied", "PP2"}, PredictingRun{"tied", "TP2 SP CP2 PP2 DP2"},
                    PredictingRun{"deepseek", "TP2 SP"}, PredictingRun{"deepseek", "DP2 EP2 PP2"},
                    PredictingRun{"llama repeated", "TP2 SP CP2 PP2 DP2"},
                    PredictingRun{"llama repeated", "PP2 VPP2"},
                    PredictingRun{"deepseek repeated", "DP2 EP2 PP2"}));

TEST(Predictions, AreLossesOfTheirOwn) {
  SmallRun small = predicting("llama");
  const RunFigures with = train(small);
  const test::StepFigures& first = with.steps[0];
  // As many as there are tokens to choose from.
  EXPECT_NEAR(first.others.at("mtp_1 loss"), std::log(64), 0.2);
  EXPECT_NE(first.others.at("mtp_1 loss"), first.others.at("mtp_2 loss"));
  small.options.prediction_scale = 0;
  const RunFigures apart = train(small);
  EXPECT_EQ(apart.steps[0].loss, first.loss);
  EXPECT_EQ(apart.steps[0].others, first.others);
  EXPECT_LT(apart.steps[0].norm, first.norm);
  const RunFigures without = train(test::with_predictions(small, 0));
  EXPECT_NEAR(apart.steps[0].norm / without.steps[0].norm, 1, 1e-6);
  EXPECT_EQ(with.evaluation, without.evaluation);
}

TEST(Predictions, MustBeOnTheStageOfTheLoss) {
  SmallRun small = predicting("llama");
  small.architecture.layers = small.run.layers = 1;
  small.run.pipeline = small.run.world_size = 2;
  small.run.loss_is_a_layer = true;
  train(small, "--mtp-num-layers: the decoder's last layer");
}

// What tests/interop/trainer/make_predictions.py prints; it makes up the same weights and tokens.
void expect_of_core(SmallRun small, const std::vector<double>& losses,
                    const std::map<std::string, double>& norms) {
  small.global_batch = 2;
  small.options.prediction_scale = 0.5 / 2;
  small.mask = [](int64_t sample, std::vector<float>& mask) {
    if (sample == 1) mask[3] = mask[9] = 0;
  };
  const auto links = thread_links(thread_groups(1));
  test::SmallRank rank(small, links[0]);
  rank.for_parameters([](const std::string& name, const Parameter& parameter) {
    double start = name.ends_with("norm.weight") ? 1 : 0, sum = 0;
    for (const char letter : name) sum += static_cast<unsigned char>(letter);
    for (int64_t i = 0; i < parameter.elements; ++i) {
      const auto at = static_cast<double>(i);
      const double wave = 0.1 * std::sin(sum + 0.7 * at + 0.013 * at * at);
      static_cast<float*>(parameter.value.data)[i] = static_cast<float>(start + wave);
    }
  });
  const StepLoss loss = rank.compute_gradients();
  EXPECT_NEAR(loss.sum / loss.tokens, losses.at(0), 1e-6);
  EXPECT_NEAR(loss.predictions.at(0), losses.at(1), 1e-6);
  EXPECT_NEAR(loss.predictions.at(1), losses.at(2), 1e-6);
  std::map<std::string, double> squares;
  rank.for_parameters([&](const std::string& name, const Parameter& parameter) {
    for (int64_t i = 0; i < parameter.elements; ++i) {
      const double one = static_cast<const float*>(parameter.gradient.data)[i];
      for (const auto& [prefix, norm] : norms) {
        if (name.starts_with(prefix)) squares[prefix] += one * one;
      }
    }
  });
  for (const auto& [prefix, norm] : norms) {
    EXPECT_NEAR(std::sqrt(squares.at(prefix)) / norm, 1, 1e-6) << prefix;
  }
}

TEST(Predictions, AreThoseOfMegatronCore) {
  expect_of_core(test::with_predictions(test::small_run()), {4.2734561, 4.38549471, 4.35445499},
                 {{"", 2.84768887},
                  {"embedding", 1.27437908},
                  {"decoder.layers", 2.24718752},
                  {"decoder.final", 0.0857104268},
                  {"mtp.layers.0.enorm", 0.0172498326},
                  {"mtp.layers.0", 0.34094633},
                  {"mtp.layers.1", 0.279092954},
                  {"output_layer", 1.11083508}});
}

TEST(Predictions, ByOneLayerAreThoseOfMegatronCore) {
  expect_of_core(test::with_repeated_prediction(test::small_run()),
                 {4.2734561, 4.38549471, 4.397367},
                 {{"", 2.9152451},
                  {"embedding", 1.32137704},
                  {"decoder.layers", 2.28700896},
                  {"decoder.final", 0.0873363303},
                  {"mtp.layers.0.enorm", 0.0317469465},
                  {"mtp.layers.0", 0.537381879},
                  {"output_layer", 1.10715842}});
}

class RecomputedPredictions : public testing::TestWithParam<const char*> {};

TEST_P(RecomputedPredictions, HaveTheSameBits) {
  SmallRun small = predicting(GetParam());
  const RunFigures kept = train(small);
  small.options.recompute.layers = Recompute::Layers::in_blocks;
  small.options.recompute.count = 1;
  const RunFigures again = train(small);
  for (size_t i = 0; i < kept.steps.size(); ++i) {
    EXPECT_EQ(again.steps[i].loss, kept.steps[i].loss);
    EXPECT_EQ(again.steps[i].norm, kept.steps[i].norm);
    EXPECT_EQ(again.steps[i].others, kept.steps[i].others);
  }
  EXPECT_LT(again.activation_bytes, kept.activation_bytes);
}

INSTANTIATE_TEST_SUITE_P(Models, RecomputedPredictions,
                         testing::Values("deepseek", "llama repeated"));

}  // namespace
}  // namespace ferry
