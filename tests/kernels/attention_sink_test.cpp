// Scores of no key: a softmax over one more score for each head, whose value is zero.
#include "tests/kernels/attention_problems.h"
#include "tests/kernels/support.h"

namespace ferry::kernels {
namespace {

/// With scores of no key after what attend() gives.
Result with_sinks(const AttentionProblem& p, Result result, const std::vector<double>& scores) {
  const auto& s = p.shape;
  for (int64_t b = 0; b < s.sequences; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      for (int64_t q = 0; q < s.queries; ++q) {
        double& log_sum = result.log_sum[p.row(b, h, q)];
        const double power = std::exp(log_sum), score = scores[static_cast<size_t>(h)];
        const double all = power + std::exp(score);
        for (int64_t d = 0; d < s.value_dim; ++d) {
          result.output[p.o_at(b, h, q, d)] *= power / all;
        }
        log_sum = std::log(all);
      }
    }
  }
  return result;
}

double loss_of(const AttentionProblem& p, const Result& result) {
  double sum = 0;
  for (size_t i = 0; i < result.output.size(); ++i) sum += result.output[i] * p.doutput[i];
  return sum;
}

struct Sinks {
  Numbers scores, output, log_sum, dscores, dqkv;

  static Numbers scores_of(const AttentionProblem& p, Type type) {
    return random_numbers(p.shape.heads, type, 5, 2);
  }
  Sinks(Kernels& kernels, const AttentionProblem& p, Type type, bool accumulate) {
    scores = scores_of(p, type);
    output = Numbers(p.doutput.size(), type);
    log_sum = Numbers(static_cast<size_t>(p.shape.sequences * p.shape.heads * p.shape.queries),
                      Type::f32);
    dscores = Numbers(std::vector<double>(static_cast<size_t>(p.shape.heads), 0.25), Type::f32);
    dqkv = Numbers(p.qkv.size(), type);
    kernels.run(forward(p, output, log_sum.floats()));
    kernels.run(AttentionSink{.shape = p.shape,
                              .score = scores,
                              .output = output,
                              .output_strides = p.output,
                              .log_sum = log_sum.floats()});
    kernels.run(AttentionSinkGradient{.shape = p.shape,
                                      .score = scores,
                                      .output = output,
                                      .doutput = p.doutput,
                                      .output_strides = p.output,
                                      .log_sum = log_sum.floats(),
                                      .dscore = Gradient(dscores, accumulate)});
    kernels.run(backward(p, output, log_sum.floats(), dqkv));
  }
};

TEST(Attention, ScoresOfNoKeyTakePartInTheSoftmax) {
  for (const Type type : kTypes) {
    for (const auto& p : attention_problems(type)) {
      for (auto& device : devices()) {
        const Sinks sinks(*device.kernels, p, type, false), again(*device.kernels, p, type, false);
        const auto expected = with_sinks(p, attend(p, p.qkv.values()), sinks.scores.values());
        // Outputs are rounded to the type twice.
        expect_near(sinks.output, expected.output,
                    type == Type::f32 ? 32 : 1.2 * std::min(product_slack(), 2.0), 1, device.name);
        expect_near(sinks.log_sum, expected.log_sum, 16, 4, device.name);
        EXPECT_TRUE(sinks.output.bits() == again.output.bits()) << device.name;
        EXPECT_TRUE(sinks.dscores.bits() == again.dscores.bits()) << device.name;
      }
    }
  }
}

// The slope of the loss, a function of these numbers, by each of them.
template <typename Loss>
std::vector<double> differences(std::vector<double> numbers, const Loss& loss) {
  constexpr double kStep = 1e-5;
  std::vector<double> slopes;
  for (double& number : numbers) {
    const double before = number;
    number = before + kStep;
    const double up = loss(numbers);
    number = before - kStep;
    slopes.push_back((up - loss(numbers)) / (2 * kStep));
    number = before;
  }
  return slopes;
}

TEST(Attention, GradientsOfScoresOfNoKeyAreTheSlopes) {
  for (const Type type : kTypes) {
    for (const auto& p : attention_problems(type)) {
      const auto plain = attend(p, p.qkv.values());
      const auto slopes = differences(Sinks::scores_of(p, type).values(), [&](const auto& scores) {
        return loss_of(p, with_sinks(p, plain, scores));
      });
      for (auto& device : devices()) {
        for (const bool accumulate : {true, false}) {
          const Sinks sinks(*device.kernels, p, type, accumulate);
          auto expected = slopes;
          for (double& slope : expected) slope += accumulate ? 0.25 : 0;
          // Each of many outputs is rounded to the type.
          expect_near(sinks.dscores, expected, type == Type::f32 ? 64 : 2e5, 2, device.name);
        }
      }
    }
  }
}

TEST(Attention, GradientsWithScoresOfNoKeyAreTheSlopes) {
  for (const auto& p : attention_problems(Type::f32)) {
    if (p.qkv.size() > 1000) continue;
    const auto scores = Sinks::scores_of(p, Type::f32).values();
    const auto slopes = differences(p.qkv.values(), [&](const auto& x) {
      return loss_of(p, with_sinks(p, attend(p, x), scores));
    });
    for (auto& device : devices()) {
      const Sinks sinks(*device.kernels, p, Type::f32, false);
      expect_near(sinks.dqkv, slopes, 64, 2, device.name);
    }
  }
}

}  // namespace
}  // namespace ferry::kernels
