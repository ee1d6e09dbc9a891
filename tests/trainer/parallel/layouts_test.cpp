// Parameters that all tensor ranks have: with sequence parallelism each rank sees its own rows of
// what they are multiplied with, and their gradients are sums over ranks.
#include "tests/trainer/parallel/small_run.h"

namespace ferry {
namespace {

using test::RunFigures;
using test::SmallRun;

struct LayoutRun {
  const char* model;
  const char* layout;
};

void PrintTo(const LayoutRun& one, std::ostream* out) { *out << one.model << " " << one.layout; }

SmallRun model_of(std::string_view name) {
  if (name == "scores of no key and biases of experts") return test::small_gpt_oss();
  if (name == "shared gate") {
    SmallRun small = test::small_experts();
    small.architecture.shared_ffn = 16;
    small.architecture.shared_gate = true;
    return small;
  }
  SmallRun small = test::small_deepseek();
  small.run.transformer_engine = name != "local latent attention";
  if (name == "latent attention without query ranks") small.architecture.q_lora_rank = 0;
  return small;
}

class Shared : public testing::TestWithParam<LayoutRun> {};

TEST_P(Shared, ParametersHaveTheGradientOfOneRank) {
  SmallRun small = model_of(GetParam().model);
  const RunFigures alone = train(small);
  lay_out(small, GetParam().layout);
  expect_alike(train(small), alone, 2e-6);
}

// In many buckets, which are reduced and gathered during passes, or one.
TEST(Buckets, ChangeNothing) {
  for (const char* layout : {"DP2", "TP2 SP DP2", "PP2 VPP2 MBS1 DP2", "CP2 DP2"}) {
    SCOPED_TRACE(layout);
    for (SmallRun small : {test::small_gpt2(), test::small_deepseek()}) {
      lay_out(small, layout);
      const RunFigures whole = train(small);
      lay_out(small, std::string(layout) + " BUCKETS");
      expect_alike(train(small), whole, 1e-8);
    }
  }
}

TEST(Passes, ThatNoMachineHoldsAreRefused) {
  SmallRun small = test::small_run();
  small.options.sequences = int64_t{1} << 24;
  train(small, "a pass over 16777216 sequences of 16 tokens needs more than 256 GiB");
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, Shared,
    testing::Values(LayoutRun{"latent attention", "TP2 SP"},
                    LayoutRun{"latent attention", "TP2 SP CP2 PP2 DP2 EP2"},
                    LayoutRun{"latent attention without query ranks", "TP2 SP"},
                    LayoutRun{"local latent attention", "TP2 SP"},
                    LayoutRun{"scores of no key and biases of experts", "TP2 ETP1 SP CP2 PP2 DP2 EP2"},
                    LayoutRun{"shared gate", "TP2 SP"}, LayoutRun{"shared gate", "TP2 SP DP2 EP2"}));

}  // namespace
}  // namespace ferry
