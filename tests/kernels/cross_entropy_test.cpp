#include <algorithm>
#include <limits>

#include "tests/kernels/support.h"

namespace ferry::kernels {
namespace {

/// The three steps on the columns [first, first + count) of `parts` ranks; sums between them are
/// taken as the ranks' reductions would. No parts: all at once.
struct LossProblem {
  int64_t rows, columns, parts;
  Type type;
  Numbers logits, weight, loss, dlogits;
  std::vector<int32_t> targets;

  LossProblem(int64_t r, int64_t c, int64_t p, Type t)
      : rows(r),
        columns(c),
        parts(p),
        type(t),
        logits(random_numbers(r * c, t, 1, 4)),
        weight(random_numbers(r, Type::f32, 2)),
        loss(static_cast<size_t>(r), Type::f32),
        dlogits(logits) {
    for (int64_t i = 0; i < rows; ++i) {
      targets.push_back(static_cast<int32_t>((i * 7919 + 3) % columns));
    }
  }

  void run(Kernels& kernels) {
    if (parts == 0) {
      dlogits = logits;
      return kernels.run(CrossEntropy{.rows = rows,
                                      .columns = columns,
                                      .logits = dlogits,
                                      .targets = targets.data(),
                                      .weight = weight.floats(),
                                      .loss = loss.floats(),
                                      .dlogits = dlogits});
    }
    const auto n = static_cast<size_t>(rows);
    Numbers maximum(std::vector<double>(n, -1e30), Type::f32), part(n, Type::f32);
    Numbers sum(n, Type::f32), target(n, Type::f32), part_target(n, Type::f32);
    std::vector<Numbers> shares;
    const int64_t share = columns / parts;
    for (int64_t p = 0; p < parts; ++p) {
      shares.emplace_back(static_cast<size_t>(rows * share), type);
      for (int64_t i = 0; i < rows * share; ++i) {
        shares.back().set(static_cast<size_t>(i),
                          logits[i / share * columns + p * share + i % share]);
      }
      kernels.run(LogitMaximum{
          .rows = rows, .columns = share, .logits = shares.back(), .maximum = part.floats()});
      for (size_t i = 0; i < n; ++i) maximum.set(i, std::max(maximum[i], part[i]));
    }
    for (int64_t p = 0; p < parts; ++p) {
      kernels.run(LogitSums{.rows = rows,
                            .columns = share,
                            .first_column = p * share,
                            .logits = shares[static_cast<size_t>(p)],
                            .targets = targets.data(),
                            .maximum = maximum.floats(),
                            .sum = part.floats(),
                            .target = part_target.floats()});
      for (size_t i = 0; i < n; ++i) {
        sum.set(i, sum[i] + part[i]);
        target.set(i, target[i] + part_target[i]);
      }
    }
    for (int64_t p = 0; p < parts; ++p) {
      auto& mine = shares[static_cast<size_t>(p)];
      kernels.run(CrossEntropyGradient{.rows = rows,
                                       .columns = share,
                                       .first_column = p * share,
                                       .logits = mine,
                                       .targets = targets.data(),
                                       .maximum = maximum.floats(),
                                       .sum = sum.floats(),
                                       .target = target.floats(),
                                       .weight = weight.floats(),
                                       .loss = loss.floats(),
                                       .dlogits = mine});
      for (int64_t i = 0; i < rows * share; ++i) {
        dlogits.set(static_cast<size_t>(i / share * columns + p * share + i % share), mine[i]);
      }
    }
  }
};

void check(LossProblem x) {
  std::vector<double> losses, gradients;
  for (int64_t i = 0; i < x.rows; ++i) {
    double sum = 0;
    for (int64_t j = 0; j < x.columns; ++j) sum += std::exp(x.logits[i * x.columns + j]);
    const int64_t target = x.targets[static_cast<size_t>(i)];
    losses.push_back(std::log(sum) - x.logits[i * x.columns + target]);
    for (int64_t j = 0; j < x.columns; ++j) {
      const double probability = std::exp(x.logits[i * x.columns + j]) / sum;
      gradients.push_back(x.weight[i] * (probability - (j == target ? 1 : 0)));
    }
  }
  std::string bits;
  for (auto& device : devices()) {
    x.run(*device.kernels);
    expect_near(x.loss, losses, 8, 4, device.name);
    expect_near(x.dlogits, gradients, x.type == Type::f32 ? 16 : 0.6, 0.01, device.name);
    const auto now = x.loss.bits() + x.dlogits.bits();
    EXPECT_TRUE(bits.empty() || bits == now) << device.name;
    bits = now;
  }
}

TEST(CrossEntropy, EqualsAPlainLoop) {
  for (const Type type : kTypes) {
    check(LossProblem(7, 37, 1, type));
    check(LossProblem(3, 9000, 1, type));
    check(LossProblem(5, 96, 3, type));
    check(LossProblem(1, 1, 1, type));
    check(LossProblem(7, 37, 0, type));
    check(LossProblem(3, 9000, 0, type));
    check(LossProblem(400, 1000, 0, type));  // more than a GPU has blocks for at once
    // More than a block of a GPU has shared memory, or shared memory and registers, for.
    for (const int64_t columns : {128256, 150000, 164352, 164360})
      check(LossProblem(2, columns, 0, type));
  }
}

TEST(CrossEntropy, MaskedLogitsHaveNoPart) {
  for (const Type type : kTypes) {
    // The least number of the type.
    const double least = type == Type::f16    ? -65504
                         : type == Type::bf16 ? -0x1.FEp127
                                              : -0x1.FFFFFEp127;
    for (const double mask : {least, -std::numeric_limits<double>::infinity()}) {
      if (type == Type::f16 && mask < least) continue;  // Numbers has no infinity of fp16
      for (const int64_t columns : {9000, 9001, 150000}) {
        LossProblem x(3, columns, 0, type);
        for (int64_t row = 0; row < x.rows; ++row) {
          for (int64_t column = 0; column < 600; ++column) {
            if (column == x.targets[static_cast<size_t>(row)]) continue;
            x.logits.set(static_cast<size_t>(row * columns + column), mask);
          }
        }
        check(x);
      }
    }
  }
}

TEST(CrossEntropy, TheGradientIsTheSlope) {
  const auto kernels = one_device(1);
  LossProblem x(2, 5, 1, Type::f32);
  x.run(*kernels);
  for (size_t i = 0; i < x.logits.size(); ++i) {
    constexpr double kStep = 1.0 / 64;
    auto up = x, down = x;
    up.logits.set(i, x.logits[i] + kStep);
    down.logits.set(i, x.logits[i] - kStep);
    up.run(*kernels);
    down.run(*kernels);
    const size_t row = i / 5;
    EXPECT_NEAR(x.dlogits[i], x.weight[row] * (up.loss[row] - down.loss[row]) / (2 * kStep), 2e-4);
  }
}

TEST(CrossEntropy, GivesTheLossAloneWithoutWeights) {
  LossProblem x(1, 3, 1, Type::f32);
  const float maximum = 2, sum = 3, target = -1;
  one_device(1)->run(CrossEntropyGradient{.rows = 1,
                                          .columns = 3,
                                          .logits = x.logits,
                                          .targets = x.targets.data(),
                                          .maximum = &maximum,
                                          .sum = &sum,
                                          .target = &target,
                                          .loss = x.loss.floats()});
  EXPECT_NEAR(x.loss[size_t{0}], std::log(3.0) + 1, 1e-6);
  const Numbers logits(std::vector<double>{1, 2, 3}, Type::f32);
  const int32_t last = 2;
  one_device(1)->run(CrossEntropy{
      .rows = 1, .columns = 3, .logits = logits, .targets = &last, .loss = x.loss.floats()});
  EXPECT_NEAR(x.loss[size_t{0}], std::log(1 + std::exp(-1.0) + std::exp(-2.0)), 1e-6);
}

}  // namespace
}  // namespace ferry::kernels
