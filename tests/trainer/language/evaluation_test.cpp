// Which samples a run is evaluated on.
#include <csignal>

#include "tests/trainer/language/runs.h"

namespace ferry::test {
namespace {

class Evaluation : public testing::Test {
 protected:
  // By iteration, of a run that ends after `until` of them.
  std::map<int64_t, double> losses(const std::string& more, int64_t until) const {
    static const std::regex kLine(R"(validation loss at iteration (\d+) .*lm loss value: (\S+))");
    const std::string printed = run_of(
        common_words(scratch_) +
        "--num-layers 1 --hidden-size 32 --num-attention-heads 4 --max-position-embeddings 64 "
        "--eval-interval 2 --exit-interval " +
        std::to_string(until) + " " + more);
    std::map<int64_t, double> losses;
    const std::sregex_iterator end;
    for (std::sregex_iterator line(printed.begin(), printed.end(), kLine); line != end; ++line) {
      losses[std::stoll((*line)[1])] = std::stod((*line)[2]);
    }
    return losses;
  }
  std::string saved(const std::string& name) const {
    return "--load " + scratch_.path(name) + " --save " + scratch_.path(name) +
           " --save-interval 4 ";
  }

  const Scratch scratch_;
};

// As Megatron-LM's, which takes validation samples at random, too.
TEST_F(Evaluation, TakesSamplesInTheOrderOfTheDataloadersType) {
  const std::string still = "--eval-iters 2 --lr 0 --min-lr 0 ";
  const auto single = losses(still, 4), cyclic = losses(still + "--dataloader-type cyclic", 4);
  ASSERT_EQ(single.size(), 2u);
  ASSERT_EQ(cyclic.size(), 2u);
  for (const auto& [iteration, loss] : single) EXPECT_NE(cyclic.at(iteration), loss);
}

// As Megatron-LM's: what training consumed counts for training alone.
TEST_F(Evaluation, WithoutTrainingBeginsWithTheFirstSample) {
  const std::string words = "--eval-iters 2 --lr 0 --min-lr 0 ";
  losses(words + saved("run"), 4);
  const std::string alone = words + "--skip-train --load " + scratch_.path("run");
  EXPECT_EQ(losses(alone, 8).at(4), losses(alone + " --finetune", 8).at(0));
}

// A long one does not keep a run that is asked to end from saving in time.
TEST_F(Evaluation, IsLeftWhenTheRunIsToEnd) {
  const std::string words =
      common_words(scratch_) + saved("run") +
      "--num-layers 1 --hidden-size 32 --num-attention-heads 4 --max-position-embeddings 64 "
      "--eval-interval 1 --eval-iters 5 --exit-signal-handler ";
  const auto asked_to_end = [](const auto& group, const auto& links) {
    std::raise(SIGTERM);
    return test_device(group, links);
  };
  const Outcome outcome = outcome_of(words, asked_to_end);
  EXPECT_EQ(outcome.problem, "");
  EXPECT_THAT(outcome.printed, testing::Not(testing::HasSubstr("validation loss")));
  EXPECT_THAT(outcome.printed, testing::HasSubstr("saving checkpoint at iteration       1 "));
  EXPECT_THAT(outcome.printed, testing::HasSubstr("stopping the evaluation after 1 of 5 batches"));
  // The next one's samples are those of a run that was not interrupted.
  const auto second = [&](const std::string& more) {
    const std::string printed = run_of(words + more + " --exit-interval 2");
    const size_t at = printed.find("validation loss at iteration 2 ");
    return printed.substr(at, printed.find('\n', at) - at);
  };
  const std::string whole =
      "--save " + scratch_.path("whole") + " --load " + scratch_.path("whole");
  EXPECT_EQ(second(""), second(whole));
}

TEST_F(Evaluation, GoesOnAfterAStop) {
  for (const std::string type : {"single", "cyclic"}) {
    const std::string words = "--eval-iters 2 --dataloader-type " + type + " ";
    const auto whole = losses(words, 6);
    losses(words + saved(type), 4);
    EXPECT_EQ(losses(words + saved(type), 6).at(6), whole.at(6)) << type;
    // As if evaluations had been made before.
    losses("--eval-iters 0 --dataloader-type " + type + " " + saved(type + "-unseen"), 4);
    EXPECT_EQ(losses(words + saved(type + "-unseen"), 6).at(6), whole.at(6)) << type;
  }
}

}  // namespace
}  // namespace ferry::test
