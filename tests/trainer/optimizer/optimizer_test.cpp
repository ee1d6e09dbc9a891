// What the optimizers' steps take from a run, and what they make of it.
#include <cmath>

#include "ckpt/megatron/rank_folders/parameter_kind.h"
#include "tests/trainer/parallel/small_run.h"

namespace ferry {
namespace {

using test::SmallRank;
using test::SmallRun;

// Values of the published implementation's formulas, in double precision.
TEST(Ademamix, WarmsUp) {
  OptimizerOptions options;
  options.alpha = 8;
  options.beta3_warmup = 100;
  options.alpha_warmup = 10;
  EXPECT_DOUBLE_EQ(warm_alpha(options, 1), 0.8);
  EXPECT_DOUBLE_EQ(warm_alpha(options, 10), 8);
  EXPECT_DOUBLE_EQ(warm_alpha(options, 11), 8);
  EXPECT_NEAR(warm_beta3(options, 1), 0.9909009905567496, 1e-12);
  EXPECT_NEAR(warm_beta3(options, 50), 0.9998002195855972, 1e-12);
  EXPECT_NEAR(warm_beta3(options, 99), 0.9998990010191962, 1e-12);
  EXPECT_DOUBLE_EQ(warm_beta3(options, 100), 0.9999);
  options.beta3_warmup = options.alpha_warmup = -1;
  EXPECT_DOUBLE_EQ(warm_beta3(options, 1), 0.9999);
  EXPECT_DOUBLE_EQ(warm_alpha(options, 1), 8);
}

// Three steps of every parameter, compared with a plain loop in double precision.
TEST(Ademamix, IsWarmedUpInARun) {
  SmallRun small = test::small_run();
  small.optimizer.kind = OptimizerOptions::Kind::ademamix;
  small.optimizer.clip = 0;
  small.optimizer.alpha = 4;
  small.optimizer.alpha_warmup = small.optimizer.beta3_warmup = 5;
  const auto links = thread_links(thread_groups(1));
  SmallRank rank(small, links[0]);
  struct Reference {
    std::vector<double> values, fast, slow, square;
  };
  std::vector<Reference> all;
  for (const StateRun& run : rank.state().runs()) {
    const auto count = static_cast<size_t>(run.elements);
    const std::vector<double> zeros(count);
    all.push_back({{run.master, run.master + count}, zeros, zeros, zeros});
  }
  for (int step = 1; step <= 3; ++step) {
    rank.take_step(step - 1);
    const double alpha = 4 * step / 5.0, beta3 = warm_beta3(small.optimizer, step);
    for (size_t r = 0; r < all.size(); ++r) {
      const StateRun& run = rank.state().runs()[r];
      Reference& reference = all[r];
      for (size_t i = 0; i < reference.values.size(); ++i) {
        const double g = static_cast<const float*>(run.gradient.data)[i];
        reference.fast[i] = 0.9 * reference.fast[i] + 0.1 * g;
        reference.slow[i] = beta3 * reference.slow[i] + (1 - beta3) * g;
        reference.square[i] = 0.999 * reference.square[i] + 0.001 * g * g;
        const double update =
            (reference.fast[i] / (1 - std::pow(0.9, step)) + alpha * reference.slow[i]) /
            (std::sqrt(reference.square[i] / (1 - std::pow(0.999, step))) + 1e-8);
        reference.values[i] -= 1e-3 * (update + (run.decays ? 0.1 : 0) * reference.values[i]);
        ASSERT_NEAR(run.master[i], reference.values[i], 2e-6) << run.name << " step " << step;
      }
    }
  }
}

TEST(WeightDecay, IsForMatricesAndOnRequestForNormsOfQueriesAndKeys) {
  for (const bool on_request : {false, true}) {
    EXPECT_TRUE(has_weight_decay("decoder.layers.mlp.router.weight", 2, on_request));
    for (const char* name : {"decoder.final_layernorm.weight", "decoder.layers.mlp.linear_fc1.bias",
                             "decoder.layers.self_attention.kv_layernorm.weight"}) {
      EXPECT_FALSE(has_weight_decay(name, 1, on_request)) << name;
    }
    for (const char* name : {"decoder.layers.self_attention.q_layernorm.weight",
                             "decoder.layers.self_attention.k_layernorm.bias"}) {
      EXPECT_EQ(has_weight_decay(name, 1, on_request), on_request) << name;
    }
  }
}

TEST(Decoupled, InputAndOutputLearnAtTheirOwnRate) {
  SmallRun small = test::small_run();
  small.input_and_output_rate = 0;
  const auto links = thread_links(thread_groups(1));
  SmallRank rank(small, links[0]);
  std::map<std::string, std::vector<float>> before;
  rank.for_parameters([&](const std::string& name, const Parameter& parameter) {
    const auto* const values = static_cast<const float*>(parameter.value.data);
    before[name].assign(values, values + parameter.elements);
  });
  rank.take_step(0);
  rank.for_parameters([&](const std::string& name, const Parameter& parameter) {
    const auto* const values = static_cast<const float*>(parameter.value.data);
    const bool stays = std::equal(before[name].begin(), before[name].end(), values);
    EXPECT_EQ(stays, name == "embedding.word_embeddings.weight" || name == "output_layer.weight")
        << name;
  });
}

// A gradient that is not finite changes nothing, and is reported after the step.
TEST(Skipped, StepsChangeNothing) {
  SmallRun small = test::small_run();
  const auto links = thread_links(thread_groups(1));
  SmallRank rank(small, links[0]);
  rank.take_step(0);
  const auto state = [&] {
    std::vector<float> all;
    for (const StateRun& run : rank.state().runs()) {
      const auto moment = [&](size_t kind) { return static_cast<float*>(run.states[kind].data); };
      for (const float* part : {run.master, moment(0), moment(1)}) {
        all.insert(all.end(), part, part + run.elements);
      }
    }
    return all;
  };
  const std::vector<float> before = state();
  small.loss_scale = 1e300;  // which the rank refers to
  EXPECT_FALSE(std::isfinite(rank.take_step(1).norm));
  EXPECT_EQ(state(), before);
  small.loss_scale = 1;
  EXPECT_TRUE(std::isfinite(rank.take_step(2).norm));
  EXPECT_NE(state(), before);
}

// Copies of the embeddings on other stages learn as the first one does.
TEST(Decoupled, IsTheSameAtAllLayouts) {
  SmallRun small = test::with_predictions(test::small_run());
  small.architecture.tied = true;
  small.input_and_output_rate = 5e-3;
  const test::RunFigures alone = train(small);
  for (const char* layout : {"TP2 SP", "PP2", "PP2 VPP2", "DP2"}) {
    SCOPED_TRACE(layout);
    SmallRun laid_out = small;
    lay_out(laid_out, layout);
    expect_alike(train(laid_out), alone, 2e-6);
  }
}

}  // namespace
}  // namespace ferry
