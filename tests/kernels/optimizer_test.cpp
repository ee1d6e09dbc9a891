#include <iterator>
#include <limits>

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
  Numbers parameter, copy;
  std::vector<Numbers> moments;

  explicit State(size_t count_of_moments, Type type = Type::f32, int64_t count = kCount)
      : parameter(random_numbers(count, Type::f32, 1)) {
    for (size_t i = 0; i < count_of_moments; ++i) {
      moments.push_back(random_numbers(count, type, 2 + static_cast<unsigned>(i)));
      for (size_t j = 0; j < moments[i].size(); ++j) moments[i].set(j, std::fabs(moments[i][j]));
    }
  }
  std::array<Array, 3> states() const {
    std::array<Array, 3> all;
    for (size_t i = 0; i < moments.size(); ++i) all[i] = moments[i];
    return all;
  }
  std::string bits() const {
    auto all = parameter.bits() + copy.bits();
    for (const auto& moment : moments) all += moment.bits();
    return all;
  }
};

/// Runs make(step) on every device; update(gradient, numbers of the state) does the same to
/// plain numbers.
template <typename Make, typename Update>
void check(size_t moments, double decay, const Make& make, const Update& update,
           Type moment_type = Type::f32) {
  for (const Type type : kTypes) {
    const auto gradient = random_numbers(kCount, type, 9);
    const float scale = 0.5, skipped = 1, taken = 0;
    std::string bits;
    for (auto& device : devices()) {
      State s(moments, moment_type);
      s.copy = Numbers(kCount, type);
      const auto before = s.bits();
      StepInput step{.runs = {{.count = kCount,
                               .gradient = gradient,
                               .parameter = s.parameter.floats(),
                               .copy = type == Type::f32 ? Array() : s.copy.array(),
                               .states = s.states(),
                               .learning_rate = 0.01,
                               .weight_decay = decay}},
                     .gradient_scale = &scale,
                     .is_skipped = &skipped};
      device.kernels->run(make(step));
      EXPECT_TRUE(before == s.bits()) << "a step that is skipped changes nothing";
      step.is_skipped = &taken;
      device.kernels->run(make(step));
      const State old(moments, moment_type);
      std::vector<std::vector<double>> numbers(moments + 1);
      for (size_t i = 0; i < kCount; ++i) {
        std::vector<double> plain{old.parameter[i]};
        for (const auto& moment : old.moments) plain.push_back(moment[i]);
        update(0.5 * gradient[i], plain);
        for (size_t j = 0; j <= moments; ++j) numbers[j].push_back(plain[j]);
      }
      expect_near(s.parameter, numbers[0], 8, 1, device.name);
      for (size_t j = 0; j < moments; ++j) {
        const bool is_rounded = moment_type != Type::f32;
        expect_near(s.moments[j], numbers[j + 1], is_rounded ? 0.501 : 4, is_rounded ? 1e-3 : 1,
                    "moment");
      }
      if (type != Type::f32) {
        for (size_t i = 0; i < kCount; ++i) {
          ASSERT_EQ(s.copy[i], rounded(s.parameter[i], type)) << i;
        }
      }
      EXPECT_TRUE(bits.empty() || bits == s.bits()) << device.name;
      bits = s.bits();
    }
  }
}

void check_adam(double decay, bool decoupled, int64_t number, Type moment_type = Type::f32) {
  check(
      2, decay,
      [&](const StepInput& step) {
        return AdamStep{.step = step,
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
      },
      moment_type);
}

TEST(Adam, EqualsAPlainLoop) {
  check_adam(0.1, true, 1);
  check_adam(0, true, 1000);
  check_adam(0.1, false, 3);
}

// A decay that is lost in a rounding of most parameters has to be there in their mean.
TEST(Adam, DecaysBelowARounding) {
  constexpr int64_t kMany = 100000;
  for (auto& device : devices()) {
    Numbers gradient = random_numbers(kMany, Type::f32, 4);
    State s(2, Type::f32, kMany);
    for (size_t i = 0; i < kMany; ++i) s.parameter.set(i, 1);
    const State old = s;
    StepInput step{.runs = {{.count = kMany,
                             .gradient = gradient,
                             .parameter = s.parameter.floats(),
                             .states = s.states(),
                             .learning_rate = 1e-6,
                             .weight_decay = 0.01}}};
    device.kernels->run(AdamStep{.step = step});
    double lost = 0;
    for (size_t i = 0; i < kMany; ++i) {
      const double g = gradient[i], m = (0.9 * old.moments[0][i] + 0.1 * g) / 0.1;
      const double v = (0.999 * old.moments[1][i] + 0.001 * g * g) / 0.001;
      lost += 1 - 1e-6 * m / (std::sqrt(v) + 1e-8) - s.parameter[i];
    }
    EXPECT_NEAR(lost / kMany, 1e-8, 1e-9) << device.name;
  }
}

// Runs of all lengths, with rates of their own: more than a GPU takes at once, some longer than
// what one block of its threads takes, some of which it cannot move 16 bytes at a time, and
// elements of no run between them.
struct ManyRuns {
  static constexpr int kRuns = 250;
  std::vector<int64_t> begins, counts;
  int64_t total = 3;

  ManyRuns() {
    for (int i = 0; i < kRuns; ++i) {
      const bool is_long = i % 25 == 9;
      total = i % 3 == 0 ? total + 3 : total;
      if (i % 50 == 9 || i % 4 == 0) total = (total + 7) / 8 * 8;
      begins.push_back(total);
      counts.push_back(is_long ? 20000 + i : i % 4 == 0 ? 8 * (i % 7) : i % 23);
      total += counts.back();
    }
  }
  double rate(int i) const { return 0.01 * (1 + i % 2); }
  double decay(int i) const { return i % 5 == 0 ? 0.0 : 0.002 * i; }
};

std::vector<ParameterRun> runs_of(const ManyRuns& many, const Numbers& gradient, State& s) {
  std::vector<ParameterRun> all;
  for (int i = 0; i < ManyRuns::kRuns; ++i) {
    const int64_t at = many.begins[static_cast<size_t>(i)];
    ParameterRun& run = all.emplace_back();
    run.count = many.counts[static_cast<size_t>(i)];
    run.gradient = ConstArray(gradient).from(at);
    run.parameter = s.parameter.floats() + at;
    if (s.copy.size() > 0) run.copy = s.copy.array().from(at);
    for (size_t j = 0; j < s.moments.size(); ++j) run.states[j] = s.moments[j].array().from(at);
    run.learning_rate = many.rate(i);
    run.weight_decay = many.decay(i);
  }
  return all;
}

template <typename Step>
class StepOfManyRuns : public testing::Test {};
using Steps = testing::Types<AdamStep, SgdStep, AdemamixStep>;
TYPED_TEST_SUITE(StepOfManyRuns, Steps);

TYPED_TEST(StepOfManyRuns, IsThatOfEachAlone) {
  const ManyRuns many;
  for (const Type type : {Type::f32, Type::bf16}) {
    for (auto& device : devices()) {
      TypeParam step;
      step.number = 3;
      const auto gradient = random_numbers(many.total, type, 9);
      State together(3, Type::f32, many.total);
      if (type != Type::f32) together.copy = random_numbers(many.total, type, 8);
      State alone = together;
      step.step.runs = runs_of(many, gradient, together);
      device.kernels->run(step);
      for (const ParameterRun& run : runs_of(many, gradient, alone)) {
        step.step.runs = {run};
        device.kernels->run(step);
      }
      EXPECT_TRUE(together.bits() == alone.bits()) << device.name;
    }
  }
}

TEST(Adam, OfManyRunsEqualsAPlainLoop) {
  const ManyRuns many;
  for (auto& device : devices()) {
    const auto gradient = random_numbers(many.total, Type::bf16, 9);
    const State before(2, Type::f32, many.total);
    State after = before;
    after.copy = random_numbers(many.total, Type::bf16, 8);
    AdamStep step;
    step.step.runs = runs_of(many, gradient, after);
    device.kernels->run(step);
    std::vector<double> expected;
    for (size_t i = 0; i < static_cast<size_t>(many.total); ++i) {
      expected.push_back(before.parameter[i]);
    }
    for (int run = 0; run < ManyRuns::kRuns; ++run) {
      const auto begin = static_cast<size_t>(many.begins[static_cast<size_t>(run)]);
      const auto count = static_cast<size_t>(many.counts[static_cast<size_t>(run)]);
      for (size_t i = begin; i < begin + count; ++i) {
        const double g = gradient[i];
        const double m = (0.9 * before.moments[0][i] + 0.1 * g) / 0.1;
        const double v = (0.999 * before.moments[1][i] + 0.001 * g * g) / 0.001;
        expected[i] = expected[i] * (1 - many.rate(run) * many.decay(run)) -
                      many.rate(run) * m / (std::sqrt(v) + 1e-8);
      }
    }
    expect_near(after.parameter, expected, 8, 1, device.name);
  }
}

// The step goes by what they were before they were rounded.
TEST(Adam, RoundsMomentsOf16Bits) {
  check_adam(0.1, true, 1, Type::bf16);
  check_adam(0.1, false, 3, Type::bf16);
  check_adam(0.1, true, 3, Type::f16);
}

// fp32 parameters as a bf16 copy and what it leaves of them.
struct Halves {
  std::vector<uint16_t> copy;
  std::vector<int16_t> remainder;

  // As Transformer Engine splits them: halves go up.
  explicit Halves(const std::vector<uint32_t>& parameters) {
    for (const uint32_t bits : parameters) {
      copy.push_back(static_cast<uint16_t>((bits >> 16) + (bits >> 15 & 1)));
      remainder.push_back(static_cast<int16_t>(bits));
    }
  }
  uint32_t parameter(size_t i) const {
    return (uint32_t{copy[i]} << 16) + static_cast<uint32_t>(int32_t{remainder[i]});
  }
  StepInput step(const Numbers& gradient, const State& state, double rate,
                 const float* is_skipped) {
    return {.runs = {{.count = static_cast<int64_t>(copy.size()),
                      .gradient = gradient,
                      .parameter = nullptr,
                      .copy = Array(copy.data(), Type::bf16),
                      .remainder = remainder.data(),
                      .states = state.states(),
                      .learning_rate = rate,
                      .weight_decay = rate}},
            .gradient_scale = nullptr,
            .is_skipped = is_skipped};
  }
};

TEST(Adam, OfRemaindersIsThatOfFp32Parameters) {
  constexpr float kSkipped = 1, kTaken = 0;
  for (const Type type : {Type::f32, Type::bf16}) {
    for (auto& device : devices()) {
      const auto gradient = random_numbers(kCount, type, 9);
      State whole(2, type), split(2, type);
      whole.copy = Numbers(kCount, Type::bf16);
      std::vector<uint32_t> parameters;
      for (size_t i = 0; i < kCount; ++i) {
        parameters.push_back(std::bit_cast<uint32_t>(static_cast<float>(whole.parameter[i])));
      }
      Halves halves(parameters);
      device.kernels->run(
          AdamStep{.step = halves.step(gradient, split, 0.01, &kSkipped), .number = 2});
      for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(halves.parameter(i), parameters[i]) << i;
      for (int time = 0; time < 3; ++time) {
        AdamStep step{.step = halves.step(gradient, split, 0.01, &kTaken), .number = 2};
        device.kernels->run(step);
        ParameterRun& run = step.step.runs[0];
        run.parameter = whole.parameter.floats();
        run.copy = whole.copy;
        run.remainder = nullptr;
        run.states = whole.states();
        device.kernels->run(step);
        for (size_t i = 0; i < kCount; ++i) {
          const float reference = whole.parameter.floats()[i];
          ASSERT_EQ(halves.parameter(i), std::bit_cast<uint32_t>(reference)) << device.name << i;
        }
      }
      EXPECT_NE(halves.parameter(0), parameters[0]);
      const std::string copies(reinterpret_cast<const char*>(halves.copy.data()), 2 * kCount);
      EXPECT_TRUE(copies == whole.copy.bits()) << device.name;
      for (size_t j = 0; j < 2; ++j) {
        EXPECT_TRUE(split.moments[j].bits() == whole.moments[j].bits()) << device.name;
      }
    }
  }
}

// A step by nothing: copies are those of fp32 parameters, to nearest even, and 2^15 is 2^15 - 1.
TEST(Adam, RoundsToTheCopyAsWithoutRemainders) {
  struct Case {
    uint32_t parameter;
    uint16_t copy, remainder;
  };
  const Case cases[] = {{0x3F807FFF, 0x3F80, 0x7FFF}, {0x3F808000, 0x3F80, 0x7FFF},
                        {0x3F808001, 0x3F81, 0x8001}, {0x3F818000, 0x3F82, 0x8000},
                        {0xBF808000, 0xBF80, 0x7FFF}, {0xBF818000, 0xBF82, 0x8000},
                        {0x00000001, 0x0000, 0x0001}, {0x80000000, 0x8000, 0x0000},
                        {0x3F7FFFFF, 0x3F80, 0xFFFF}, {0x7F7FFFFF, 0x7F80, 0xFFFF}};
  std::vector<uint32_t> parameters;
  for (size_t i = 0; i < 3 * std::size(cases); ++i) {
    parameters.push_back(cases[i % std::size(cases)].parameter);
  }
  const auto count = static_cast<int64_t>(parameters.size());
  for (auto& device : devices()) {
    Halves halves(parameters);
    const auto gradient = random_numbers(count, Type::bf16, 9);
    const State zero_rate(2);
    device.kernels->run(
        AdamStep{.step = halves.step(gradient, zero_rate, 0, nullptr), .number = 2});
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Case& one = cases[i % std::size(cases)];
      EXPECT_EQ(halves.copy[i], one.copy) << device.name << std::hex << one.parameter;
      EXPECT_EQ(static_cast<uint16_t>(halves.remainder[i]), one.remainder)
          << device.name << std::hex << one.parameter;
    }
  }
}

TEST(Sgd, EqualsAPlainLoop) {
  for (const int64_t number : {1, 2}) {
    check(
        1, 0.1,
        [&](const StepInput& step) {
          return SgdStep{.step = step, .momentum = 0.9, .number = number};
        },
        [&](double g, std::vector<double>& x) {
          g += 0.1 * x[0];
          x[1] = number > 1 ? 0.9 * x[1] + g : g;
          x[0] -= 0.01 * x[1];
        });
  }
  check(
      0, 0, [](const StepInput& step) { return SgdStep{.step = step}; },
      [](double g, std::vector<double>& x) { x[0] -= 0.01 * g; });
}

TEST(Ademamix, EqualsAPlainLoop) {
  check(
      3, 0.1,
      [](const StepInput& step) {
        return AdemamixStep{.step = step,
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
