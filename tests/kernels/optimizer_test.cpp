#include "tests/kernels/support.h"

namespace ferry::kernels {
namespace {

constexpr int64_t kCount = 137;

TEST(ClipScale, IsMegatrons) {
  const double infinity = std::numeric_limits<double>::infinity();
  struct Case {
    double sum, max_norm, loss_scale, scale;
    bool is_skipped = false;
  };
  for (const Case& one :
       {Case{4, 1, 1, 1 / 2.000001}, Case{0.25, 1, 1, 1}, Case{0, 1, 1, 1}, Case{25, 0, 1, 1},
        Case{64, 1, 4, 1 / 2.000001 / 4}, Case{4, 1, 4, 0.25}, Case{infinity, 1, 1, 0, true},
        Case{std::nan(""), 1, 1, 0, true}, Case{std::nan(""), 0, 1, 0, true}}) {
    for (auto& device : devices()) {
      float scale = -1, is_skipped = -1;
      device.kernels->run(ClipScale{.sum_of_squares = &one.sum,
                                    .max_norm = one.max_norm,
                                    .loss_scale = one.loss_scale,
                                    .scale = &scale,
                                    .is_skipped = &is_skipped});
      EXPECT_EQ(is_skipped, one.is_skipped ? 1 : 0) << one.sum;
      if (one.is_skipped) continue;
      EXPECT_EQ(scale, static_cast<float>(one.scale)) << one.sum;
    }
  }
}

struct State {
  Numbers parameter = random_numbers(kCount, Type::f32, 1), copy;
  std::vector<Numbers> moments;
  std::string bits() const {
    auto all = parameter.bits() + copy.bits();
    for (const auto& moment : moments) all += moment.bits();
    return all;
  }
};

State state(size_t moments) {
  State s;
  for (size_t i = 0; i < moments; ++i) {
    s.moments.push_back(random_numbers(kCount, Type::f32, 2 + static_cast<unsigned>(i)));
    for (size_t j = 0; j < kCount; ++j) s.moments[i].set(j, std::fabs(s.moments[i][j]));
  }
  return s;
}

/// Runs make(state, step) on every device; wanted(i, gradient, numbers of the state) changes plain
/// numbers.
template <typename Make, typename Wanted>
void check(size_t moments, double decay, const Make& make, const Wanted& wanted) {
  for (const Type type : kTypes) {
    const auto gradient = random_numbers(kCount, type, 9);
    const float scale = 0.5, skipped = 1, taken = 0;
    std::string bits;
    for (auto& device : devices()) {
      auto s = state(moments);
      s.copy = Numbers(kCount, type);
      const auto before = s.bits();
      StepInput step{.count = kCount,
                     .gradient = gradient,
                     .gradient_scale = &scale,
                     .is_skipped = &skipped,
                     .parameter = s.parameter.floats(),
                     .copy = type == Type::f32 ? Array() : s.copy.array(),
                     .learning_rate = 0.01,
                     .weight_decay = decay};
      device.kernels->run(make(s, step));
      EXPECT_TRUE(before == s.bits()) << "a step that is skipped changes nothing";
      step.is_skipped = &taken;
      device.kernels->run(make(s, step));
      const auto old = state(moments);
      std::vector<std::vector<double>> numbers(moments + 1);
      for (size_t i = 0; i < kCount; ++i) {
        std::vector<double> plain{old.parameter[i]};
        for (const auto& moment : old.moments) plain.push_back(moment[i]);
        wanted(0.5 * gradient[i], plain);
        for (size_t j = 0; j <= moments; ++j) numbers[j].push_back(plain[j]);
      }
      expect_near(s.parameter, numbers[0], 8, 1, device.name);
      for (size_t j = 0; j < moments; ++j)
        expect_near(s.moments[j], numbers[j + 1], 4, 1, "moment");
      if (step.copy) {
        for (size_t i = 0; i < kCount; ++i) {
          ASSERT_EQ(s.copy[i], rounded(s.parameter[i], type)) << i;
        }
      }
      EXPECT_TRUE(bits.empty() || bits == s.bits()) << device.name;
      bits = s.bits();
    }
  }
}

void check_adam(double decay, bool decoupled, int64_t number) {
  check(
      2, decay,
      [&](State& s, const StepInput& step) {
        return AdamStep{.step = step,
                        .first_moment = s.moments[0].floats(),
                        .second_moment = s.moments[1].floats(),
                        .beta1 = 0.9,
                        .beta2 = 0.95,
                        .epsilon = 1e-8,
                        .number = number,
                        .decoupled = decoupled};
      },
      [&](double g, std::vector<double>& x) {
        if (!decoupled) g += decay * x[0];
        x[1] = 0.9 * x[1] + 0.1 * g;
        x[2] = 0.95 * x[2] + 0.05 * g * g;
        const double m = x[1] / (1 - std::pow(0.9, static_cast<double>(number)));
        const double v = x[2] / (1 - std::pow(0.95, static_cast<double>(number)));
        x[0] = x[0] * (decoupled ? 1 - 0.01 * decay : 1) - 0.01 * m / (std::sqrt(v) + 1e-8);
      });
}

TEST(Adam, EqualsAPlainLoop) {
  check_adam(0.1, true, 1);
  check_adam(0, true, 1000);
  check_adam(0.1, false, 3);
}

TEST(Sgd, EqualsAPlainLoop) {
  for (const int64_t number : {1, 2}) {
    check(
        1, 0.1,
        [&](State& s, const StepInput& step) {
          return SgdStep{.step = step,
                         .momentum_buffer = s.moments[0].floats(),
                         .momentum = 0.9,
                         .number = number};
        },
        [&](double g, std::vector<double>& x) {
          g += 0.1 * x[0];
          x[1] = number > 1 ? 0.9 * x[1] + g : g;
          x[0] -= 0.01 * x[1];
        });
  }
  check(
      0, 0, [](State&, const StepInput& step) { return SgdStep{.step = step}; },
      [](double g, std::vector<double>& x) { x[0] -= 0.01 * g; });
}

TEST(Ademamix, EqualsAPlainLoop) {
  check(
      3, 0.1,
      [](State& s, const StepInput& step) {
        return AdemamixStep{.step = step,
                            .fast_moment = s.moments[0].floats(),
                            .slow_moment = s.moments[1].floats(),
                            .second_moment = s.moments[2].floats(),
                            .beta1 = 0.9,
                            .beta2 = 0.95,
                            .beta3 = 0.999,
                            .alpha = 5,
                            .epsilon = 1e-8,
                            .number = 3};
      },
      [](double g, std::vector<double>& x) {
        x[1] = 0.9 * x[1] + 0.1 * g;
        x[2] = 0.999 * x[2] + 0.001 * g;
        x[3] = 0.95 * x[3] + 0.05 * g * g;
        const double m = x[1] / (1 - std::pow(0.9, 3)), v = x[3] / (1 - std::pow(0.95, 3));
        x[0] -= 0.01 * ((m + 5 * x[2]) / (std::sqrt(v) + 1e-8) + 0.1 * x[0]);
      });
}

}  // namespace
}  // namespace ferry::kernels
