// What is dropped out is a function of the step, the layer and the token: it does not depend on
// which rank computes the token, and in which micro-batch.
#include "tests/trainer/parallel/small_run.h"

namespace ferry {
namespace {

using test::RunFigures;
using test::SmallRun;

struct DroppingRun {
  const char* model;
  const char* layout;
};

void PrintTo(const DroppingRun& one, std::ostream* out) { *out << one.model << " " << one.layout; }

SmallRun with_dropout(std::string_view model) {
  SmallRun small = model == "gpt2"       ? test::small_gpt2()
                   : model == "experts"  ? test::small_experts()
                   : model == "deepseek" ? test::small_deepseek()
                                         : test::small_run();
  small.options.hidden_dropout = 0.1;
  small.options.attention_dropout = 0.2;
  // Its loss is one of micro-batches, and choices of experts jump.
  small.router.balance = RouterOptions::Balance::none;
  return small;
}

class Dropout : public testing::TestWithParam<DroppingRun> {};

TEST_P(Dropout, DoesNotDependOnTheLayout) {
  SmallRun small = with_dropout(GetParam().model);
  const RunFigures alone = train(small);
  lay_out(small, GetParam().layout);
  expect_alike(train(small), alone, 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Layouts, Dropout,
                         testing::Values(DroppingRun{"llama", "TP2"}, DroppingRun{"llama", "TP2 SP"},
                                         DroppingRun{"llama", "PP2"}, DroppingRun{"llama", "PP2 VPP2"},
                                         DroppingRun{"llama", "DP2"}, DroppingRun{"llama", "CP2"},
                                         DroppingRun{"llama", "TP2 SP CP2 PP2 DP2"}, DroppingRun{"llama", "MBS1"},
                                         DroppingRun{"llama", "MBS4"}, DroppingRun{"gpt2", "TP2 SP"},
                                         DroppingRun{"gpt2", "PP2 DP2 MBS1"}, DroppingRun{"gpt2", "CP2"},
                                         DroppingRun{"experts", "DP2 EP2"}, DroppingRun{"experts", "TP2 SP"},
                                         DroppingRun{"deepseek", "TP2 SP"}, DroppingRun{"deepseek", "CP2"},
                                         DroppingRun{"deepseek", "DP2 EP2 PP2"}));

TEST(DropoutOfSeed, IsForTrainingAlone) {
  SmallRun small = with_dropout("llama");
  small.steps = 1;
  const RunFigures one = train(small);
  small.options.seed += 1;
  const RunFigures other = train(small);
  EXPECT_NE(one.steps[0].loss, other.steps[0].loss);
  EXPECT_EQ(one.evaluation, other.evaluation);
  small.options.hidden_dropout = small.options.attention_dropout = 0;
  const RunFigures none = train(small);
  EXPECT_EQ(none.steps[0].loss, none.evaluation);
  EXPECT_EQ(one.evaluation, none.evaluation);
  EXPECT_NE(one.steps[0].loss, none.steps[0].loss);
  EXPECT_NEAR(one.steps[0].loss, none.steps[0].loss, 0.5);
}

}  // namespace
}  // namespace ferry
