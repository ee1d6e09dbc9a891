// What is computed twice has the same bits the second time, counts once, and need not be kept.
#include "tests/trainer/parallel/small_run.h"

namespace ferry {
namespace {

using test::RunFigures;
using test::SmallRun;

Recompute blocks_of(int64_t layers) {
  Recompute recompute;
  recompute.layers = Recompute::Layers::in_blocks;
  recompute.count = layers;
  return recompute;
}

Recompute first_ones(int64_t layers) {
  Recompute recompute = blocks_of(layers);
  recompute.layers = Recompute::Layers::first_ones;
  return recompute;
}

Recompute modules(std::initializer_list<bool Recompute::*> members) {
  Recompute recompute;
  for (bool Recompute::*member : members) recompute.*member = true;
  return recompute;
}

struct RecomputingRun {
  const char* model;
  const char* layout;
  Recompute recompute;
};

void PrintTo(const RecomputingRun& one, std::ostream* out) { *out << one.model << " " << one.layout; }

class Recomputed : public testing::TestWithParam<RecomputingRun> {};

TEST_P(Recomputed, GivesTheSameBits) {
  const std::string_view model = GetParam().model;
  SmallRun small = model == "gpt2"       ? test::small_gpt2()
                   : model == "deepseek" ? test::small_deepseek()
                                         : test::small_experts();
  if (model == "global balance") small.router.balance = RouterOptions::Balance::global_batch;
  small.options.hidden_dropout = small.options.attention_dropout = 0.1;
  lay_out(small, GetParam().layout);
  const RunFigures kept = train(small);
  small.options.recompute = GetParam().recompute;
  const RunFigures again = train(small);
  for (size_t i = 0; i < kept.steps.size(); ++i) {
    EXPECT_EQ(again.steps[i].loss, kept.steps[i].loss);
    EXPECT_EQ(again.steps[i].norm, kept.steps[i].norm);
    EXPECT_EQ(again.steps[i].others, kept.steps[i].others);
  }
  EXPECT_EQ(again.evaluation, kept.evaluation);
  EXPECT_LT(again.activation_bytes, kept.activation_bytes);
}

using R = Recompute;
INSTANTIATE_TEST_SUITE_P(
    Layers, Recomputed,
    testing::Values(RecomputingRun{"gpt2", "", blocks_of(1)}, RecomputingRun{"gpt2", "", blocks_of(3)},
                    RecomputingRun{"gpt2", "", first_ones(2)}, RecomputingRun{"gpt2", "TP2 SP PP2", blocks_of(1)},
                    RecomputingRun{"gpt2", "PP2 VPP2", blocks_of(1)}, RecomputingRun{"gpt2", "CP2", first_ones(3)},
                    RecomputingRun{"experts", "", blocks_of(2)}, RecomputingRun{"experts", "DP2 EP2", blocks_of(1)},
                    RecomputingRun{"experts", "TP2 SP", blocks_of(1)},
                    RecomputingRun{"global balance", "PP2 VPP2 MBS1 DP2", blocks_of(1)},
                    RecomputingRun{"global balance", "", modules({&R::moe})},
                    RecomputingRun{"deepseek", "", first_ones(4)},
                    RecomputingRun{"deepseek", "TP2 SP CP2", blocks_of(1)}));
INSTANTIATE_TEST_SUITE_P(
    Modules, Recomputed,
    testing::Values(RecomputingRun{"gpt2", "", modules({&R::norms})}, RecomputingRun{"gpt2", "", modules({&R::mlp})},
                    RecomputingRun{"gpt2", "TP2 SP", modules({&R::norms, &R::mlp})},
                    RecomputingRun{"experts", "", modules({&R::moe})},
                    RecomputingRun{"experts", "DP2 EP2", modules({&R::expert_activation})},
                    RecomputingRun{"deepseek", "", modules({&R::latent_up})},
                    RecomputingRun{"deepseek", "", modules({&R::shared_experts})},
                    RecomputingRun{"deepseek", "TP2 SP CP2",
                         modules({&R::norms, &R::latent_up, &R::mlp, &R::expert_activation,
                                  &R::shared_experts})},
                    RecomputingRun{"deepseek", "DP2 EP2 PP2", modules({&R::latent_up, &R::moe})}));

}  // namespace
}  // namespace ferry
