#include "trainer/schedule/learning_rate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/arguments/runs.h"

namespace ferry::test {
namespace {

// The learning rates of a published 6e-5-to-6e-6 run by samples, computed by Megatron-LM.
Schedule by_samples() {
  Schedule s;
  s.max_lr = 6e-5;
  s.min_lr = 6e-6;
  s.warmup = 183105;
  s.decay = 126953125;
  s.style = "cosine";
  s.weight_decay_style = "constant";
  return s;
}

TEST(LearningRate, IsMegatronsToTheLastBit) {
  const Schedule s = by_samples();
  EXPECT_EQ(learning_rate(s, 0), 0);
  EXPECT_EQ(learning_rate(s, 288), 9.437208159252888e-08);
  EXPECT_EQ(learning_rate(s, 183105), 6e-05);
  EXPECT_EQ(learning_rate(s, 1000000), 5.999446754309363e-05);
  EXPECT_EQ(learning_rate(s, 126953125), 6e-06);
  EXPECT_EQ(learning_rate(s, 146484375), 6e-06);
}

TEST(LearningRate, FollowsTheCommandLine) {
  auto a = completed(
               "--num-layers 2 --hidden-size 8 --num-attention-heads 2 --seq-length 8 "
               "--max-position-embeddings 8 --micro-batch-size 1 --global-batch-size 128 "
               "--train-iters 500 --lr 2.2e-4 --min-lr 2.2e-5 --lr-decay-style cosine "
               "--lr-warmup-iters 200")
               .arguments;
  const Schedule s = schedule_of(a);
  EXPECT_EQ(s.decay, 500 * 128);
  EXPECT_EQ(s.warmup, 200 * 128);
  EXPECT_DOUBLE_EQ(learning_rate(s, 350 * 128), 1.21e-4);
  a.lr_warmup_iters = 0;
  a.lr_warmup_fraction = 0.1;
  EXPECT_EQ(schedule_of(a).warmup, 6400);
  a.lr_warmup_fraction.reset();
  a.lr_warmup_iters = 500;
  EXPECT_THROW(schedule_of(a), Error);
  a.train_iters.reset();
  a.lr_warmup_iters = 0;
  a.train_samples = 1000;
  EXPECT_EQ(schedule_of(a).decay, 1000);
}

struct Rates {
  const char* style;
  const char* wsd_style;
  double rates[5];
};

// What Megatron-LM's own scheduler gives after so many samples.
TEST(LearningRate, HasEveryStyleToTheLastBit) {
  Schedule s;
  s.init_lr = 1e-7;
  s.max_lr = 3e-4;
  s.min_lr = 3e-5;
  s.warmup = 2000;
  s.decay = 100000;
  s.wsd_decay = 20000;
  constexpr int64_t kSamples[] = {777, 2001, 50001, 87654, 99999};
  constexpr Rates kRates[] = {
      {"linear",
       "",
       {0.00011661115, 0.00029999724489795915, 0.0001677523469387755, 6.401448979591836e-05,
        3.000275510204082e-05}},
      {"cosine",
       "",
       {0.00011661115, 0.00029999999993063326, 0.00016932263748928948, 4.0435842986648844e-05,
        3.0000000069366748e-05}},
      {"inverse-square-root",
       "",
       {0.00011661115, 0.00029992502811328637, 5.999940000899985e-05, 4.531587632082846e-05,
        4.242661900481821e-05}},
      {"WSD", "linear", {0.00011661115, 0.0003, 0.0003, 0.00019667099999999996, 3.00135e-05}},
      {"WSD",
       "cosine",
       {0.00011661115, 0.0003, 0.0003, 0.00021363034272477873, 3.000000166549575e-05}},
      {"WSD",
       "exponential",
       {0.00011661115, 0.0003, 0.0003, 0.0001741804355579598, 3.00093576490923e-05}},
      {"WSD",
       "minus_sqrt",
       {0.00011661115, 0.0003, 0.0003, 0.00013297057145520731, 3.000675008437712e-05}},
      {"constant", "", {0.00011661115, 0.0003, 0.0003, 0.0003, 0.0003}},
  };
  for (const Rates& each : kRates) {
    s.style = each.style;
    s.wsd_style = each.wsd_style;
    for (size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(learning_rate(s, kSamples[i]), each.rates[i])
          << each.style << " " << each.wsd_style << " after " << kSamples[i];
    }
  }
  s.start_weight_decay = 0.01;
  s.end_weight_decay = 0.1;
  s.weight_decay_samples = 90000;
  s.weight_decay_style = "linear";
  EXPECT_EQ(weight_decay(s, 777), 0.010777);
  EXPECT_EQ(weight_decay(s, 50001), 0.060001000000000006);
  s.weight_decay_style = "cosine";
  EXPECT_EQ(weight_decay(s, 777), 0.010016550558699025);
  EXPECT_EQ(weight_decay(s, 89999), 0.09999999997258444);
  EXPECT_EQ(weight_decay(s, 90001), 0.1);
}

// Max 1, min 0.1, warm-up 10, decay 100, WSD 20: by hand.
TEST(LearningRate, MeetsItsEnds) {
  Schedule s;
  s.max_lr = 1;
  s.min_lr = 0.1;
  s.warmup = 10;
  s.decay = 100;
  s.wsd_decay = 20;
  const auto rate = [&](const char* style, const char* wsd, int64_t samples) {
    s.style = style;
    s.wsd_style = wsd;
    return learning_rate(s, samples);
  };
  EXPECT_EQ(rate("constant", "", 5), 0.5);
  EXPECT_EQ(rate("constant", "", 500), 1);
  EXPECT_EQ(rate("linear", "", 55), 0.55);
  EXPECT_EQ(rate("linear", "", 101), 0.1);
  EXPECT_EQ(rate("cosine", "", 55), 0.55);
  EXPECT_EQ(rate("cosine", "", 100), 0.1);
  EXPECT_EQ(rate("inverse-square-root", "", 40), 0.5);
  EXPECT_EQ(rate("inverse-square-root", "", 101), 0.1);
  EXPECT_EQ(rate("WSD", "linear", 80), 1);
  EXPECT_DOUBLE_EQ(rate("WSD", "linear", 85), 0.775);
  EXPECT_DOUBLE_EQ(rate("WSD", "cosine", 90), 0.55);
  EXPECT_DOUBLE_EQ(rate("WSD", "exponential", 90), 0.1 + 0.9 * (2 * 0.7071067811865476 - 1));
  EXPECT_DOUBLE_EQ(rate("WSD", "minus_sqrt", 85), 0.55);
  EXPECT_EQ(rate("WSD", "1-sqrt", 85), rate("WSD", "minus_sqrt", 85));
  // A group of parameters with rates of its own.
  s.style = "linear";
  EXPECT_DOUBLE_EQ(learning_rate(s, 55, 3, 1), 2);
}

TEST(WeightDecay, GrowsAsConfigured) {
  Schedule s;
  s.start_weight_decay = 0.1;
  s.end_weight_decay = 0.3;
  s.weight_decay_samples = 100;
  s.weight_decay_style = "linear";
  EXPECT_EQ(weight_decay(s, 0), 0.1);
  EXPECT_DOUBLE_EQ(weight_decay(s, 50), 0.2);
  EXPECT_EQ(weight_decay(s, 101), 0.3);
  s.weight_decay_style = "cosine";
  EXPECT_DOUBLE_EQ(weight_decay(s, 25), 0.1 + 0.2 * 0.14644660940672627);
  s.weight_decay_style = "constant";
  EXPECT_EQ(weight_decay(s, 0), 0.3);
}

TEST(ScheduleState, ComesBack) {
  Draft draft;
  Schedule s = by_samples();
  s.end_weight_decay = s.start_weight_decay = 0.1;
  const Value state = write_schedule(s, 288, draft);
  EXPECT_EQ(state.get("num_steps").integer(), 288);
  EXPECT_EQ(state.get("lr_warmup_steps").integer(), 183105);
  const auto loaded = read_schedule(state, s, ScheduleChoice::must_agree, "ckpt");
  EXPECT_EQ(loaded.samples, 288);
  EXPECT_EQ(loaded.schedule, s);

  Schedule ours = s;
  const auto problem = [&] {
    try {
      read_schedule(state, ours, ScheduleChoice::must_agree, "ckpt");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::mismatch);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  ours.decay = 5;  // as of a run that is made longer
  EXPECT_THAT(problem(), testing::HasSubstr("the decay in samples (--lr-decay-iters, without it "
                                            "--train-iters) is 126953125 in the checkpoint"));
  ours = s;
  ours.weight_decay_samples = 7;
  EXPECT_THAT(problem(), testing::HasSubstr("growth in samples (--train-iters)"));
  ours = s;
  ours.max_lr = 1;
  EXPECT_EQ(read_schedule(state, ours, ScheduleChoice::checkpoint_wins, "ckpt").schedule, s);
  EXPECT_EQ(read_schedule(state, ours, ScheduleChoice::arguments_win, "ckpt").schedule, ours);
  EXPECT_THAT(problem(), testing::HasSubstr("the learning rate (--lr) is 6e-05 in the checkpoint"));
}

TEST(ScheduleState, KnowsOlderNamesAndRefusesNonsense) {
  Draft draft;
  Value old = draft.dict();
  draft.put(old, "start_lr", draft.real(2));
  draft.put(old, "warmup_iter", draft.integer(3));
  draft.put(old, "end_iter", draft.integer(40));
  draft.put(old, "decay_style", draft.string("linear"));
  draft.put(old, "num_iters", draft.integer(7));
  const auto loaded = read_schedule(old, by_samples(), ScheduleChoice::checkpoint_wins, "ckpt");
  EXPECT_EQ(loaded.samples, 7);
  EXPECT_EQ(loaded.schedule.max_lr, 2);
  EXPECT_EQ(loaded.schedule.warmup, 3);
  EXPECT_EQ(loaded.schedule.decay, 40);
  EXPECT_EQ(loaded.schedule.style, "linear");
  draft.put(old, "num_iters", draft.integer(-1));
  EXPECT_THROW(read_schedule(old, by_samples(), ScheduleChoice::checkpoint_wins, "ckpt"), Error);
  draft.put(old, "num_iters", draft.integer(1));
  draft.put(old, "end_iter", draft.string("x"));
  EXPECT_THROW(read_schedule(old, by_samples(), ScheduleChoice::checkpoint_wins, "ckpt"), Error);
}

}  // namespace
}  // namespace ferry::test
