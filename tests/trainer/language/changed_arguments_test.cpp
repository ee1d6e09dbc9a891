// How a run goes on whose arguments are others than those it began with, and what it leaves out.
#include "ckpt/megatron/state_of.h"
#include "tests/trainer/language/runs.h"

namespace ferry::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class ChangedArguments : public testing::Test {
 protected:
  // From iteration 5 of the fixture's run, without evaluations.
  std::string words(const std::string& more) const {
    return "--load " + run_fixture("f32_qwen3") + common_words(scratch_) + "--eval-iters 0 " + more;
  }
  std::string saved(const std::string& name) const {
    return "--save " + scratch_.path(name) + " --save-interval 100 ";
  }
  int64_t steps_in(const std::string& name) const {
    const Checkpoint run = open_checkpoint(posix_file_system(), scratch_.path(name));
    return state_of(run).param_groups.front().value[0].get("step").integer().value_or(-1);
  }

  const Scratch scratch_;
};

std::vector<int64_t> iterations_in(const std::map<int64_t, Figures>& figures) {
  std::vector<int64_t> iterations;
  for (const auto& [iteration, figure] : figures) iterations.push_back(iteration);
  return iterations;
}

// Its moments are zero: they are corrected as those of a first step.
TEST_F(ChangedArguments, ANewOptimizerCountsItsSteps) {
  run_of(words(saved("old") + "--exit-interval 8"));
  run_of(words(saved("new") + "--exit-interval 8 --no-load-optim"));
  EXPECT_EQ(steps_in("old"), 8);
  EXPECT_EQ(steps_in("new"), 3);
}

TEST_F(ChangedArguments, OverriddenSchedulesGoByTheSamples) {
  const std::string back = "--override-ckpt-iteration 2 ";
  const auto rate = [&](const std::string& more) {
    return figures_in(run_of(words(more))).rbegin()->second.learning_rate;
  };
  const std::string third = rate("--finetune --exit-interval 3");
  EXPECT_NE(rate("--exit-interval 6"), third);
  EXPECT_EQ(rate(back + "--exit-interval 3 --override-opt_param-scheduler"), third);
  EXPECT_NE(rate(back + "--exit-interval 3"), third);  // the saved schedule's own count
}

TEST_F(ChangedArguments, OfTheOptimizerAreReported) {
  EXPECT_THAT(run_of(words("--exit-interval 6")), Not(HasSubstr("was trained with")));
  EXPECT_THAT(
      run_of(words("--exit-interval 6 --adam-beta1 0.8 --adam-eps 1e-6")),
      HasSubstr("was trained with --adam-eps 1e-08 (here 1e-06), --adam-beta1 0.9 (here 0.8); "));
  EXPECT_THAT(run_of(words("--exit-interval 6 --adam-beta1 0.8 --no-load-optim")),
              Not(HasSubstr("was trained with")));
}

// An iteration's samples go with it; the first one has the number 1.
TEST_F(ChangedArguments, IterationsToSkipAreLeftOut) {
  const std::string still = "--lr 0 --min-lr 0 --override-opt_param-scheduler --exit-interval 9 ";
  const auto whole = figures_in(run_of(words(still)));
  const auto parts = figures_in(run_of(words(still + "--iterations-to-skip 7")));
  EXPECT_THAT(iterations_in(whole), ElementsAre(6, 7, 8, 9));
  EXPECT_THAT(iterations_in(parts), ElementsAre(6, 8, 9));
  EXPECT_EQ(parts.at(9).loss, whole.at(9).loss);
}

// A phase has an order of samples of its own, from the first one on: as long as another, it has the
// same.
TEST_F(ChangedArguments, PhasesBeginWithTheirFirstSample) {
  const std::string still = "--lr 0 --min-lr 0 --finetune --exit-interval 4 ";
  run_of(words(saved("run") + still + "--phase-transition-iterations 4,8"));
  const std::string own = "--load " + scratch_.path("run") + common_words(scratch_) +
                          "--eval-iters 0 --lr 0 --min-lr 0 --exit-interval 8 "
                          "--override-opt_param-scheduler ";
  const auto first = figures_in(run_of(words(still + "--train-iters 4")));
  const auto second = figures_in(run_of(own + "--phase-transition-iterations 4,8"));
  EXPECT_THAT(iterations_in(second), ElementsAre(5, 6, 7, 8));
  for (const auto& [iteration, figures] : second) {
    EXPECT_EQ(figures.loss, first.at(iteration - 4).loss) << iteration;
  }
  EXPECT_NE(figures_in(run_of(own)).at(5).loss, first.at(1).loss);
  // What is left out has had its samples.
  const std::string skipping = "--phase-transition-iterations 4,8 --iterations-to-skip 5";
  EXPECT_EQ(figures_in(run_of(own + skipping)).at(8).loss, first.at(4).loss);
  // A run that is over may be started again, and another batch is another phase.
  const std::string over = own + "--phase-transition-iterations 2,4 --train-iters 4 ";
  EXPECT_EQ(outcome_of(over).problem, "");
  EXPECT_THAT(outcome_of(own + "--phase-transition-iterations 4,8 --global-batch-size 4").problem,
              HasSubstr("global_batch_size is 8 in the checkpoint and 4 now"));
}

}  // namespace
}  // namespace ferry::test
