// Attention over several keys, forward and backward, held against plain loops.
#include "tests/kernels/attention_problems.h"
#include "tests/kernels/support.h"

namespace ferry::kernels {
namespace {

TEST(Attention, ForwardEqualsAPlainLoop) {
  for (const Type type : kTypes) {
    for (const auto& p : attention_problems(type)) {
      for (auto& device : devices()) {
        const auto expected = attend(p, p.qkv.values());
        Numbers output(p.doutput.size(), type), again = output;
        Numbers log_sum(expected.log_sum.size(), Type::f32);
        device.kernels->run(forward(p, output, log_sum.floats()));
        device.kernels->run(forward(p, again, log_sum.floats()));
        expect_near(output, expected.output,
                    type == Type::f32 ? 32 : 0.6 * std::min(product_slack(), 2.0), 1, device.name);
        expect_near(log_sum, expected.log_sum, 16, 4, device.name);
        EXPECT_TRUE(output.bits() == again.bits()) << device.name;
      }
    }
  }
}

TEST(Attention, PartsOfTheKeysMergeToTheWhole) {
  for (const auto& p : attention_problems(Type::f32)) {
    const int64_t half = p.shape.keys / 2;
    if (half == 0) continue;
    for (auto& device : devices()) {
      const auto expected = attend(p, p.qkv.values());
      Numbers output(p.doutput.size(), Type::f32), part = output;
      Numbers log_sum(expected.log_sum.size(), Type::f32), part_log_sum = log_sum;
      auto first = forward(p, part, part_log_sum.floats());
      first.shape.keys = half;
      device.kernels->run(first);
      auto second = forward(p, output, log_sum.floats());
      second.shape.key_begin = half;
      second.shape.keys -= half;
      second.k = second.k.from(half * p.fused.position);
      second.v = second.v.from(half * p.fused.position);
      device.kernels->run(second);
      device.kernels->run(AttentionMerge{.shape = p.shape,
                                         .part = part.floats(),
                                         .part_log_sum = part_log_sum.floats(),
                                         .output = output.floats(),
                                         .output_strides = p.output,
                                         .log_sum = log_sum.floats()});
      expect_near(output, expected.output, 32, 1, device.name);
      expect_near(log_sum, expected.log_sum, 16, 4, device.name);
    }
  }
}

/// Gradients of sum(doutput · output), by differences of every element.
std::vector<double> slopes(const AttentionProblem& p) {
  auto x = p.qkv.values();
  const auto dy = p.doutput.values();
  const auto loss = [&] {
    const auto y = attend(p, x).output;
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
    return sum;
  };
  std::vector<double> result;
  for (auto& number : x) {
    constexpr double kStep = 1e-5;
    const double before = number;
    number = before + kStep;
    const double up = loss();
    number = before - kStep;
    result.push_back((up - loss()) / (2 * kStep));
    number = before;
  }
  return result;
}

/// The same by the formula, for shapes that differences take too long for.
std::vector<double> gradients(const AttentionProblem& p) {
  const auto& s = p.shape;
  const auto x = p.qkv.values();
  const auto result = attend(p, x);
  std::vector<double> dx(x.size());
  for (int64_t b = 0; b < s.sequences; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      for (int64_t q = 0; q < s.queries; ++q) {
        double delta = 0;
        for (int64_t d = 0; d < s.value_dim; ++d) {
          delta += result.output[p.o_at(b, h, q, d)] * p.doutput[p.o_at(b, h, q, d)];
        }
        for (int64_t k = 0; k < s.keys; ++k) {
          if (!p.sees(b, q, k)) continue;
          double score = 0, gradient = 0;
          for (int64_t d = 0; d < s.dim; ++d)
            score += x[p.q_at(b, h, q, d)] * x[p.k_at(b, h, k, d)];
          const double weight = std::exp(s.scale * score - result.log_sum[p.row(b, h, q)]);
          const double kept = p.kept(b, h, q, k);
          for (int64_t d = 0; d < s.value_dim; ++d) {
            gradient += kept * p.doutput[p.o_at(b, h, q, d)] * x[p.v_at(b, h, k, d)];
            dx[p.v_at(b, h, k, d)] += kept * weight * p.doutput[p.o_at(b, h, q, d)];
          }
          const double dscore = s.scale * weight * (gradient - delta);
          for (int64_t d = 0; d < s.dim; ++d) {
            dx[p.q_at(b, h, q, d)] += dscore * x[p.k_at(b, h, k, d)];
            dx[p.k_at(b, h, k, d)] += dscore * x[p.q_at(b, h, q, d)];
          }
        }
      }
    }
  }
  return dx;
}

Numbers backward(Kernels& kernels, const AttentionProblem& p, bool accumulate,
                 const Numbers& before) {
  Numbers output(p.doutput.size(), p.qkv.type());
  Numbers log_sum(static_cast<size_t>(p.shape.sequences * p.shape.heads * p.shape.queries),
                  Type::f32);
  kernels.run(forward(p, output, log_sum.floats()));
  Numbers dqkv = before;
  AttentionBackward operation = backward(p, output, log_sum.floats(), dqkv);
  operation.accumulate = accumulate;
  kernels.run(operation);
  return dqkv;
}

TEST(Attention, TheFormulaIsTheSlope) {
  for (const auto& p : attention_problems(Type::f32)) {
    if (p.qkv.size() > 3000) continue;
    const auto formula = gradients(p), slope = slopes(p);
    for (size_t i = 0; i < slope.size(); ++i) ASSERT_NEAR(formula[i], slope[i], 1e-6) << i;
  }
}

TEST(Attention, BackwardEqualsTheFormula) {
  for (const Type type : kTypes) {
    for (const auto& p : attention_problems(type)) {
      const auto expected = gradients(p);
      for (auto& device : devices()) {
        const Numbers zero(p.qkv.size(), type);
        const auto got = backward(*device.kernels, p, false, zero);
        // Outputs are rounded to the type before they are multiplied.
        expect_near(got, expected, type == Type::f32 ? 64 : 4, 2, device.name + name_of(type));
        EXPECT_TRUE(got.bits() == backward(*device.kernels, p, false, zero).bits());
        const auto before = random_numbers(static_cast<int64_t>(p.qkv.size()), type, 8);
        const auto added = backward(*device.kernels, p, true, before);
        auto sum = expected;
        const bool gaps = p.shape.dim != p.shape.value_dim;  // elements of no head stay as they are
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += before[i];
        expect_near(added, sum, type == Type::f32 ? 64 : 4, 2, device.name + (gaps ? " gaps" : ""));
      }
    }
  }
}

TEST(Attention, BitsDoNotDependOnTheNumberOfThreads) {
  for (const auto& p : attention_problems(Type::bf16)) {
    const Numbers zero(p.qkv.size(), Type::bf16);
    const auto one = backward(*one_device(1), p, false, zero);
    for (const int threads : {2, 3}) {
      EXPECT_TRUE(one.bits() == backward(*one_device(threads), p, false, zero).bits());
    }
  }
}

}  // namespace
}  // namespace ferry::kernels
